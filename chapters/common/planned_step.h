#pragma once
/// @file
/// The numbers of a step that is planned: --explain --out writes them to prediction.json, which `compare` reads.

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "chapters/common/settings.h"

namespace stagecoach {

/// A step is what happens between two updates of the weights.
struct PlannedStep {
  double seconds = 0;  ///< units, if the layers were not profiled
  /// The same for each further step, if ranks begin it before the slowest ends this one.
  std::optional<double> further_seconds = {};
  double idle = 0;  ///< share of the step, in the mean of the ranks
  double idle_in_span = 0;
  std::vector<int> peak_activations = {};  ///< per rank: (stage, micro-batch) pairs
  /// Per rank, at most: of its tensors on the modelled clock; otherwise what a process of its own takes. Empty if the
  /// layers were not profiled.
  std::vector<double> memory_bytes = {};
  double link_bytes = 0;  ///< over the busiest link in one direction
  int staleness = 0;      ///< updates between the weights of a gradient and its own update, at most
  std::map<std::string, std::map<std::string, double>> modes = {};  ///< in chapter 6: the figures of each mode
};

/// Writes prediction.json: the step, its clock ("units" if the layers were not profiled) and the settings.
void write_planned_step(const std::filesystem::path& folder, const Settings& settings, const PlannedStep& step);

}  // namespace stagecoach
