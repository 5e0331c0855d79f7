#pragma once
/// @file
/// Checks whether the times of two runs can be compared: only if both did the same work.

#include <string>
#include <vector>

#include "chapters/compare/run_record.h"

namespace stagecoach {

/// The result of comparing two runs.
struct Findings {
  std::vector<std::string> differences;  ///< what differs and what to do; if there are any, the runs are not comparable
  std::vector<std::string> remarks;      ///< what is unknown, only roughly checked, or good to know
};

/// Returns "wall", "virtual", or "mixed" if the run changed its clock.
std::string clock_of(const RunRecord& run);

/// Returns the number of epochs: "10", or "5 (6 to 10)" if the run does not begin with the first epoch.
std::string epochs_of(const RunRecord& run);

/// Checks whether `run` did the same work as `baseline`: the same data, batch size and epochs, timed by the same clock.
Findings find_differences(const RunRecord& run, const RunRecord& baseline);

}  // namespace stagecoach
