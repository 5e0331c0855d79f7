#pragma once
/// @file
/// Which runs trained the same: schedule and split should not change what is trained.

#include <cstddef>
#include <vector>

#include "chapters/compare/comparison.h"

namespace stagecoach {

/// Runs whose losses are the same in every epoch, to six digits.
struct CoincidingRuns {
  std::vector<std::size_t> runs;  ///< indices; a run that is like no other is alone
  bool same_weights = false;      ///< whether all have a weights.safetensors with the same bytes
};

/// Each run is in one of them; in the order of their first runs.
std::vector<CoincidingRuns> coinciding_runs(const std::vector<RunSummary>& runs);

}  // namespace stagecoach
