#pragma once
/// @file
/// What the user asks `compare` for.

#include <cstddef>
#include <string>
#include <vector>

#include "chapters/compare/comparison.h"

namespace stagecoach {

inline constexpr const char* kCompare = "compare";

struct CompareOptions {
  std::vector<std::string> runs = {};
  std::vector<std::size_t> baselines = {};  ///< indices into `runs`, ascending
  std::string svg = {};                     ///< the file to draw to, or ""
  std::string html = {};                    ///< the file of the report, or ""
  TableForm form = TableForm::plain;
};

/// Parses the command line; `--help` ends the program. A single baseline that is not among the runs is inserted as the
/// first run. Throws UsageError, also for a file to write that is one of a run.
CompareOptions parse_compare_options(int argc, const char* const* argv);

}  // namespace stagecoach
