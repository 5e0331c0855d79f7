#pragma once
/// @file
/// Short names for runs, and texts that any terminal, table or picture can show.

#include <string>
#include <vector>

namespace stagecoach {

/// A name for each path: its last part, or as many of its last parts as tell it from the others. For a metrics.jsonl
/// it is that of its folder. Paths that are the same get a number.
std::vector<std::string> run_names(const std::vector<std::string>& paths);

/// Whether both paths name one run, such as "runs/a" and "./runs/a/metrics.jsonl".
bool is_same_run(const std::string& a, const std::string& b);

/// `text` as valid UTF-8 on one line: control characters and bytes that are none become '?'.
std::string printable(const std::string& text);

}  // namespace stagecoach
