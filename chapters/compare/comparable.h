#pragma once
/// @file
/// Whether the times of two runs say something about each other: only if both did the same work.

#include <string>
#include <vector>

#include "chapters/compare/run_record.h"

namespace stagecoach {

/// What a look at two runs found.
struct Findings {
  std::vector<std::string> differences;  ///< each says what differs and what to do: the runs are not comparable
  std::vector<std::string> remarks;      ///< what is unknown, looked at only roughly, or good to know
};

/// "wall", "virtual", or "mixed" when the run changed its clock.
std::string clock_of(const RunRecord& run);

/// "10", or "5 (6 to 10)" if the epochs are not those from the first on.
std::string epochs_of(const RunRecord& run);

/// Looks whether `run` did the work of `baseline`: the same data, batch size and epochs, timed by the same clock.
Findings look_for_differences(const RunRecord& run, const RunRecord& baseline);

}  // namespace stagecoach
