#pragma once
/// @file
/// Which runs have learned the same.

#include <cstddef>
#include <filesystem>
#include <vector>

#include "chapters/compare/comparison.h"

namespace stagecoach {

/// Runs whose losses are the same in every epoch, to six digits.
struct CoincidingRuns {
  std::vector<std::size_t> runs;  ///< indices; a run with unique losses is on its own
  bool same_weights = false;      ///< whether all their weights.safetensors have the same bytes
};

/// Returns groups of coinciding runs, in the order of their first runs. Each run is in exactly one group.
std::vector<CoincidingRuns> coinciding_runs(const std::vector<RunSummary>& runs);

/// Returns whether both files can be read and have the same bytes.
bool has_same_bytes(const std::filesystem::path& a, const std::filesystem::path& b);

}  // namespace stagecoach
