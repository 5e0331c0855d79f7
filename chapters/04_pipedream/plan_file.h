#pragma once
/// @file
/// The measurements of each layer, and the stages chosen from them, as a JSON file: --save-plan and --plan.

#include <string>
#include <vector>

#include "chapters/common/settings.h"
#include "nn/sequential.h"
#include "parallel/pipeline/layer_profile.h"
#include "parallel/pipeline/partition.h"

namespace stagecoach {

struct PlanFile {
  std::vector<LayerProfile> layers;
  Partition stages;  ///< empty: the stages must be chosen
};

/// Writes `plan` to the file `path`. Throws DataError if that fails.
void save_plan(const std::string& path, const Settings& settings, const Sequential& model, const PlanFile& plan);

/// Reads a plan for `model`; its stages only with --balance plan, the default if --plan is given without --split or
/// --replicas. Throws DataError if the file is damaged. Throws UsageError if it was measured on another device, for
/// another model or sizes of it, or for micro-batches of another size, or if its stages are used and are for another
/// number of ranks.
PlanFile read_plan(const std::string& path, const Settings& settings, const Sequential& model);

}  // namespace stagecoach
