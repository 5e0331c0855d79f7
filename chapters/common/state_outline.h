#pragma once
/// @file
/// The names, types and shapes of the tensors of a training state. They show whether a checkpoint fits.

#include <set>
#include <string>

#include "chapters/common/training_state.h"
#include "parallel/comm/communicator.h"

namespace stagecoach {

/// The outline of a TrainingState.
struct StateOutline {
  std::multiset<std::string> tensors = {};   ///< weights and optimizer: "weights conv1.weight float32 [6, 3, 5, 5]"
  std::set<std::string> memory_shards = {};  ///< the shards of the batches whose compression has state: "0"
};

/// Returns the outline of the whole state on rank 0, and an empty one on the others. `mine` has the rank's weights and
/// optimizer state; `memory_shard` is its shard of the batches if its compression has state, and empty otherwise. All
/// ranks call it together.
StateOutline gather_outline(Communicator& comm, const TrainingState& mine, const std::string& memory_shard);

/// Returns the reason why `state` does not have the outline `expected`, such as "lacks …"; empty if it does. The
/// tensors of the compression state are known only after a step, so they are compared between shards.
std::string misfit(const StateOutline& expected, const StateContents& state);

}  // namespace stagecoach
