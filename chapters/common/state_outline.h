#pragma once
/// @file
/// Which tensors the state of a training consists of, without their values. A checkpoint that holds other tensors is
/// recognised by it.

#include <set>
#include <string>

#include "chapters/common/training_state.h"
#include "parallel/comm/communicator.h"

namespace stagecoach {

/// The tensors of a TrainingState.
struct StateOutline {
  std::multiset<std::string> tensors = {};   ///< of weights and optimizer: "weights conv1.weight float32 [6, 3, 5, 5]"
  std::set<std::string> memory_shards = {};  ///< the shards of the batches for which compressions keep something: "0"
};

/// Returns the outline of the whole state on rank 0, and an empty one on the others. `mine` is what the rank holds of
/// weights and optimizer; `memory_shard` is its shard of the batches if its compression keeps something, and empty
/// otherwise. All ranks call it together.
StateOutline gather_outline(Communicator& comm, const TrainingState& mine, const std::string& memory_shard);

/// Returns why `state` is not the state of the training with the outline `expected`, as "lacks …"; empty if it can be.
/// What compressions keep is known only after a step, so it is compared between shards.
std::string misfit(const StateOutline& expected, const StateContents& state);

}  // namespace stagecoach
