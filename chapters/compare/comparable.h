#pragma once
/// @file
/// Whether the times of two runs can be compared: only if both did the same work.

#include <string>
#include <vector>

#include "chapters/compare/run_record.h"

namespace stagecoach {

/// What comparing two runs found.
struct Findings {
  std::vector<std::string> differences;  ///< what differs and what to do; any makes the runs incomparable
  std::vector<std::string> remarks;      ///< what is unknown, only roughly checked, or good to know
};

/// "wall", "virtual", or "mixed" when the run changed its clock.
std::string clock_of(const RunRecord& run);

/// "10", or "5 (6 to 10)" if the run does not begin with the first epoch.
std::string epochs_of(const RunRecord& run);

/// Checks whether `run` did the same work as `baseline`: the same data, batch size and epochs, timed by the same clock.
Findings find_differences(const RunRecord& run, const RunRecord& baseline);

}  // namespace stagecoach
