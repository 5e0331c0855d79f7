#pragma once
/// @file
/// The model that a plan spreads over ranks, and what its layers cost: measured here, or read from a file.

#include <memory>
#include <string>
#include <vector>

#include "chapters/common/settings.h"
#include "datasets/dataset.h"
#include "nn/layer_factory.h"
#include "nn/sequential.h"
#include "parallel/launch/launch.h"
#include "parallel/pipeline/layer_profile.h"

namespace stagecoach {

struct PlannedModel {
  Settings settings;                       ///< that it follows
  World world;                             ///< the ranks
  std::string model_name;                  ///< as --model has it
  std::shared_ptr<Sequential> model;       ///< all layers, without memory for their parameters
  std::int64_t images = 0;                 ///< per step of a pipeline; data of few images make it smaller
  std::int64_t last_images = 0;            ///< of an epoch's last step
  std::int64_t microbatch = 0;             ///< images of the largest micro-batch
  std::vector<LayerProfile> profile = {};  ///< of each layer, without recomputation; empty if nothing needs it
  std::string profile_json = "";           ///< the text of profile.json, if it is to be written
  std::vector<std::string> notes = {};     ///< remarks to print: sentences without a full stop
  Stage::Recompute recompute = Stage::Recompute::no;
  Stage::Record record = Stage::Record::no;  ///< whether a GPU gets the stages' work as CUDA graphs
};

/// Returns the images of an epoch's last step in the first pipeline, which has `images` in other steps. `settings` has
/// the batch size of all pipelines.
std::int64_t last_images(const Settings& settings, const Dataset& data, std::int64_t images);

/// Returns the ranks and the model of the settings. The model's profile is read from --profile-file; without that flag
/// the layers are measured on the ranks' devices, for the largest micro-batch that occurs with `data`, if --balance or
/// --profile needs it. `factory` makes the layers that the ranks compute, if they are cut. With --explain --profile
/// --out, writes profile.json.
///
/// Throws DataError for a file that cannot be read, and UsageError for one of another micro-batch, or of another model.
/// But --explain in chapters 2 to 6 plans the layers of the file, whatever the model of the run; a note says so.
PlannedModel planned_model(const Settings& settings, const Dataset& data,
                           const std::shared_ptr<const LayerFactory>& factory = nullptr);

}  // namespace stagecoach
