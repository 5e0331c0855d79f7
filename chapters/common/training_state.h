#pragma once
/// @file
/// All that a training has changed, as one device would hold it: whose it is, from the ranks to rank 0, and back.

#include <string>
#include <vector>

#include "nn/module.h"
#include "nn/optimizer.h"
#include "nn/safetensors.h"
#include "parallel/data_parallel/compression.h"
#include "parallel/pipeline/gather.h"

namespace stagecoach {

/// Of the whole model, wherever its parts lie.
struct TrainingState {
  NamedTensors weights;    ///< parameters, then buffers
  NamedTensors optimizer;  ///< its state
  NamedTensors memory;     ///< what compressions keep: that of shard S of the batches as "S.NAME"
};

/// The tensors of a TrainingState without their elements.
struct StateContents {
  std::vector<TensorInfo> weights = {};
  std::vector<TensorInfo> optimizer = {};
  std::vector<TensorInfo> memory = {};
};
StateContents contents_of(const TrainingState& state);

/// Which tensors of a saved state take memory when it is read: by their names there; all, where nothing is said.
struct StatePart {
  KeepTensor weights = {};
  KeepTensor optimizer = {};
  KeepTensor memory = {};
  Device device = {};  ///< a CPU, whose memory it is
};
StatePart no_part();
/// What take_state and take_memory need for rank `rank`. On a CPU it takes the memory of the rank's own `device`: there
/// the training uses it again for gradients and activations.
StatePart part_of_rank(const LayerRanks& layers, int rank, int shard, Device device);

/// What rank `rank` holds of weights and optimizer: handles on its tensors. `model` and `optimizer` are its own.
/// Without `layers` there is one rank, which holds all. What belongs to no layer, rank 0 has.
TrainingState state_of_rank(const LayerRanks& layers, int rank, const Module& model, const Optimizer& optimizer);

/// The ranks that hold some of it, in their order.
std::vector<int> holders(const LayerRanks& layers);

/// Copies a rank's part of `state` into its model and optimizer. Throws DataError, which begins with `what`, where they
/// do not fit.
void take_state(const LayerRanks& layers, int rank, const TrainingState& state, const Module& model,
                Optimizer& optimizer, const std::string& what);

/// What the compression of a rank that trains on part `shard` of each batch keeps, as TrainingState has it.
NamedTensors memory_of_shard(int shard, const CompressionMemory& memory);

/// Puts that of the layers of `rank` back, on `device`.
void take_memory(const LayerRanks& layers, int rank, int shard, const TrainingState& state, Device device,
                 CompressionMemory& memory);

}  // namespace stagecoach
