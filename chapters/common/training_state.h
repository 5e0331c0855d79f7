#pragma once
/// @file
/// Everything that a training changes: which rank holds which part of it, and how it is restored.

#include <string>
#include <vector>

#include "nn/module.h"
#include "nn/optimizer.h"
#include "nn/safetensors.h"
#include "parallel/data_parallel/compression.h"
#include "parallel/pipeline/gather.h"

namespace stagecoach {

/// The state of the whole model, as one device would hold it, or a rank's part of that.
struct TrainingState {
  NamedTensors weights;    ///< parameters, then buffers
  NamedTensors optimizer;  ///< its state
  NamedTensors memory;     ///< what compressions keep; for shard S of the batches as "S.NAME"
};

/// The tensors of a TrainingState without their elements.
struct StateContents {
  std::vector<TensorInfo> weights = {};
  std::vector<TensorInfo> optimizer = {};
  std::vector<TensorInfo> memory = {};
};
StateContents contents_of(const TrainingState& state);

/// Which tensors of a saved state are kept when it is read, by their names; without a function all of them.
struct StatePart {
  KeepTensor weights = {};
  KeepTensor optimizer = {};
  KeepTensor memory = {};
  Device device = {};  ///< a CPU, from whose pool their memory comes
};
StatePart no_part();
/// Returns what take_state and take_memory need for rank `rank`. On a CPU the memory comes from the rank's own
/// `device`, so that the training uses it again for gradients and activations.
StatePart part_of_rank(const LayerRanks& layers, int rank, int shard, Device device);

/// Returns what rank `rank` holds of weights and optimizer, as handles on its tensors. `model` and `optimizer` are its
/// own. Without `layers` there is one rank, which holds everything. Rank 0 has what belongs to no layer.
TrainingState state_of_rank(const LayerRanks& layers, int rank, const Module& model, const Optimizer& optimizer);

/// Returns the ranks that hold a part of the state, in ascending order.
std::vector<int> ranks_with_state(const LayerRanks& layers);

/// Copies a rank's part of `state` into its model and optimizer. Throws DataError, which begins with `what`, if they do
/// not fit.
void take_state(const LayerRanks& layers, int rank, const TrainingState& state, const Module& model,
                Optimizer& optimizer, const std::string& what);

/// Returns what the compression of a rank keeps that trains on part `shard` of each batch, named as in TrainingState.
NamedTensors memory_of_shard(int shard, const CompressionMemory& memory);

/// Restores what it keeps for the layers of `rank`, on `device`.
void take_memory(const LayerRanks& layers, int rank, int shard, const TrainingState& state, Device device,
                 CompressionMemory& memory);

}  // namespace stagecoach
