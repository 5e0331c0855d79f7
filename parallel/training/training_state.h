#pragma once
/// @file
/// Everything that a training changes, which rank holds which part of it, and how it is restored.

#include <set>
#include <string>
#include <vector>

#include "nn/module.h"
#include "nn/optimizer.h"
#include "nn/safetensors.h"
#include "parallel/comm/communicator.h"
#include "parallel/pipeline/rank_role.h"

namespace stagecoach {

/// The state of the whole model, as one device would hold it, or a rank's part of that state. The names are those of a
/// checkpoint's shard: "model.NAME" for parameters, then buffers; "optimizer.NAME".
using TrainingState = NamedTensors;

/// The tensors of a TrainingState without their elements.
using StateContents = std::vector<TensorInfo>;

/// Selects the tensors to keep when a saved state is read.
struct StatePart {
  KeepTensor keep = {};  ///< by their names in a TrainingState; without a function, all are kept
  Device device = {};    ///< the CPU device whose pool provides their memory
};
/// Returns the part that take_state needs for rank `rank`. On a CPU, the memory comes from the pool of
/// the rank's own `device`, so that the training can reuse it for gradients and activations.
StatePart part_of_rank(const LayerRanks& layers, int rank, Device device);

/// Returns handles to a rank's tensors or, if the role has a tensor group or shards, whole copies: of a tensor group
/// rank 0 has them, and the others have nothing. All these ranks call it together.
WholeLayers whole_layers(const RankRole& role, const Module& model, const Optimizer& optimizer);

/// Returns the weights and optimizer state of rank `rank`. `model` is the rank's own. Without `layers`, there is one
/// rank, which holds everything. Tensors without a layer belong to rank 0.
TrainingState state_of_rank(const LayerRanks& layers, int rank, const WholeLayers& model);
/// Returns the weights in a state, with the names that they have in the model.
NamedTensors weights_in(const TrainingState& state);

/// Returns the ranks that hold a part of the state.
std::set<int> ranks_with_state(const LayerRanks& layers);

/// Copies a rank's part of `state`, or its slices or shards of it, into its model and optimizer. Throws DataError,
/// whose text begins with `what`, if the tensors do not fit.
void take_state(const RankRole& role, int rank, const TrainingState& state, const Module& model, Optimizer& optimizer,
                const std::string& what);

/// The names, types and shapes of the tensors of a training state, a line for each: "weights conv1.weight
/// float32[6, 3, 5, 5]". They show whether a checkpoint fits.
using StateOutline = std::multiset<std::string>;

/// Returns the outline of the whole state on rank 0, and an empty one on the others. `mine` has the rank's weights and
/// optimizer state. All ranks call it together.
StateOutline gather_outline(Communicator& comm, const TrainingState& mine);

/// Returns the reason why `state` does not have the outline `expected`, such as "lacks …"; empty if it does.
std::string misfit(const StateOutline& expected, const StateContents& state);

}  // namespace stagecoach
