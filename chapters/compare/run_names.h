#pragma once
/// @file
/// Short names for runs.

#include <string>
#include <vector>

namespace stagecoach {

/// A name for each path: its last part, or as many of its last parts as tell it from the others. For a metrics.jsonl
/// it is that of its folder. Paths that are the same get a number.
std::vector<std::string> run_names(const std::vector<std::string>& paths);

/// Whether both paths name one run, such as "runs/a" and "./runs/a/metrics.jsonl".
bool is_same_run(const std::string& a, const std::string& b);

}  // namespace stagecoach
