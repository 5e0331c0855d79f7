#pragma once
/// @file
/// From the settings to the things they name.

#include <memory>
#include <vector>

#include "chapters/common/settings.h"
#include "datasets/dataset.h"
#include "datasets/loader.h"
#include "datasets/shares.h"
#include "nn/optimizer.h"
#include "nn/sequential.h"
#include "parallel/launch/mesh.h"

namespace stagecoach {

/// The device of --device, with --threads cores.
Device open_device(const WorldSettings& world);
/// How many ranks share data, and how many a pipeline has.
MeshSizes mesh_of(const Settings& settings);
/// The ranks of each stage of a pipeline: one each, unless --replicas says more.
std::vector<int> replicas_of(const Settings& settings);
/// The data of --data; with --smoke a few generated images.
TrainTest open_data(const Settings& settings);
/// A loader for training: shuffled, and with --augment augmented. Without `images` it makes labels alone. Batches are
/// made ahead on a thread where the ranks leave a core for it.
Loader training_loader(const TrainingSettings& training, const WorldSettings& world, const Dataset& data,
                       bool images = true, const Shard& shard = {});
/// A loader for testing: in the stored order, as stored.
Loader test_loader(const TrainingSettings& training, const WorldSettings& world, const Dataset& data,
                   bool images = true, const Shard& shard = {});
/// The model of --model, without memory.
std::shared_ptr<Sequential> make_model_of(const TrainingSettings& training, const Dataset& data);
/// The same, on `device`, with its initial weights.
std::shared_ptr<Sequential> open_model(const TrainingSettings& training, const Dataset& data, Device device);
/// The optimizer of --optimizer over `parameters`.
std::unique_ptr<Optimizer> open_optimizer(const TrainingSettings& training, NamedTensors parameters);

}  // namespace stagecoach
