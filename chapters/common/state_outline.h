#pragma once
/// @file
/// Which tensors a training's state consists of, without their values: by it a checkpoint is told from one that holds
/// something else.

#include <set>
#include <string>

#include "chapters/common/training_state.h"
#include "parallel/comm/communicator.h"

namespace stagecoach {

/// The tensors of a TrainingState.
struct StateOutline {
  std::multiset<std::string> tensors = {};   ///< of weights and optimizer: "weights conv1.weight float32 [6, 3, 5, 5]"
  std::set<std::string> memory_shards = {};  ///< the parts of the batches for which compressions keep something: "0"
};

/// Rank 0 gets the outline of the whole state, the others nothing. `mine` is what a rank holds of weights and
/// optimizer; `memory_shard` names its part of the batches if its compression keeps something, and is empty otherwise.
/// All ranks call it together.
StateOutline gather_outline(Communicator& comm, const TrainingState& mine, const std::string& memory_shard);

/// Why `state` is not the state of the training that `expected` is of; empty if it can be. What compressions keep is
/// known only after a step, so it is compared from shard to shard.
std::string misfit(const StateOutline& expected, const StateContents& state);

}  // namespace stagecoach
