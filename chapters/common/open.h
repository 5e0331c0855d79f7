#pragma once
/// @file
/// Creates the objects that the settings describe.

#include <memory>
#include <vector>

#include "chapters/common/settings.h"
#include "datasets/dataset.h"
#include "datasets/loader.h"
#include "datasets/shares.h"
#include "nn/loss_function.h"
#include "nn/models.h"
#include "nn/optimizer.h"
#include "nn/sequential.h"
#include "parallel/launch/launch.h"
#include "parallel/launch/mesh.h"
#include "parallel/tensor_parallel/tensor_parallel_layers.h"

namespace stagecoach {

/// Returns the device of --device, with --threads threads.
Device open_device(const WorldSettings& world);
/// Returns the ranks that the flags describe, and prepares their devices.
World open_world(const WorldSettings& settings);
/// Returns how many ranks (or pipelines) share data, and how many ranks a pipeline has.
MeshSizes mesh_of(const Settings& settings);
/// Returns the number of ranks per stage of a pipeline: one each, unless --replicas sets more.
std::vector<int> replicas_of(const Settings& settings);
/// Returns the data set of --data; with --smoke, little of it. Prints what was read, and what was left out.
TrainTest open_data(const Settings& settings);
/// Training shuffles the images, and with --augment augments them. A test takes them as they are stored.
enum class LoaderFor { training, testing };
/// Returns a loader of `data`; without `inputs`, of its targets only. It prefetches batches on a thread if the ranks
/// leave a core for it.
Loader make_loader(const TrainingSettings& training, const WorldSettings& world, const Dataset& data, LoaderFor purpose,
                   bool inputs = true, const Shard& shard = {});
/// Returns whether --sequence-parallel was given.
SequenceParallel sequence_of(const TrainingSettings& training);
/// Returns whether --class-parallel was given.
ClassParallel classes_of(const TrainingSettings& training);
/// Returns the loss of the model: `tensor_group` is the communicator of the ranks that cut its layers; null, or only
/// one rank: one device has all logits, and with --class-parallel computes their loss in the slices of --tensor-slices.
LossFunction loss_of(const TrainingSettings& training, Communicator* tensor_group = nullptr);
/// Returns whether the model takes text: sequences of bytes, with a label for each; otherwise images.
inline bool reads_text(const TrainingSettings& training) { return training.context > 0; }
/// Returns the shape of the model's inputs for `count` samples, [count, …].
Shape input_shape(const TrainingSettings& training, std::int64_t count);
/// Return the inputs and the targets of a batch of `count` samples, as a loader makes them, all zeros: for plans.
Tensor blank_inputs(const TrainingSettings& training, std::int64_t count, Device device);
Tensor blank_targets(const TrainingSettings& training, std::int64_t count, Device device);
/// Returns the sizes of --depth, --width, --heads and --context.
ModelSizes sizes_of(const TrainingSettings& training);
/// Returns the model of --model, without memory for its parameters. `layers` makes the layers that can be cut; null:
/// one device makes them, in the slices of --tensor-slices.
std::shared_ptr<Sequential> make_model_of(const TrainingSettings& training, const Dataset& data,
                                          std::shared_ptr<const LayerFactory> layers = nullptr);
/// Returns the model of --model on the device of a rank, with its initial weights, which are the same on all ranks.
std::shared_ptr<Sequential> make_model(const TrainingSettings& training, const Dataset& data, Device device,
                                       int rank = 0);
/// Returns the parameters that are the same, the first and its copy: with --tie-head, the embedding and the head.
TiedWeights::Names tied_names(const TrainingSettings& training);
/// Returns the optimizer of --optimizer for `parameters`, without copies of tied ones. Its steps keep equal what is
/// tied among `parameters`, which begins equal; tie_ranks() does so for a pair on two ranks.
std::unique_ptr<Optimizer> make_optimizer(const TrainingSettings& training, NamedTensors parameters);

}  // namespace stagecoach
