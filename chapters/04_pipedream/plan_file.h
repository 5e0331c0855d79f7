#pragma once
/// @file
/// What was measured of each layer, and the stages that were chosen by it, as a file (JSON): --save-plan and --plan.

#include <string>
#include <vector>

#include "chapters/common/settings.h"
#include "nn/sequential.h"
#include "parallel/pipeline/layer_profile.h"
#include "parallel/pipeline/partition.h"

namespace stagecoach {

struct PlanFile {
  std::vector<LayerProfile> layers;
  Partition stages;  ///< without stages: they are to be chosen
};

/// Throws DataError when the file cannot be written.
void save_plan(const std::string& path, const Settings& settings, const Sequential& model, const PlanFile& plan);

/// Reads one for `model`; its stages only with --balance plan, which is --plan without options for others. Throws
/// DataError when the file is damaged, and UsageError when it was measured on another device, for another model or
/// micro-batches of another size, or, if its stages are used, is for another number of ranks.
PlanFile read_plan(const std::string& path, const Settings& settings, const Sequential& model);

}  // namespace stagecoach
