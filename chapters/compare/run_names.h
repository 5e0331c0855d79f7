#pragma once
/// @file
/// Short names for runs.

#include <string>
#include <vector>

namespace stagecoach {

/// Returns a name for each path: its last part, or as many of its last parts as make it unique. A metrics.jsonl is
/// named after its folder. Equal paths get a number.
std::vector<std::string> run_names(const std::vector<std::string>& paths);

/// Returns whether both paths name the same run, such as "runs/a" and "./runs/a/metrics.jsonl".
bool is_same_run(const std::string& a, const std::string& b);

}  // namespace stagecoach
