#pragma once
/// @file
/// The output of --explain: what a step takes on each rank.

#include <functional>
#include <memory>

#include "chapters/09_sharded_data_parallel/sharded_replica.h"
#include "datasets/dataset.h"

namespace stagecoach {

/// Returns a rank's side of the model, whose layers have no memory yet.
using MakeReplica =
    std::function<std::unique_ptr<ShardedReplica>(const Settings& settings, Sequential& model, Communicator& comm)>;

/// Prints time, memory and bytes of the third step, of this program itself: it runs on the modelled clock, with tensors
/// without elements, so nothing is computed and every model fits. With --out, writes prediction.json.
void explain(const Settings& settings, const Dataset& data, const MakeReplica& make);

}  // namespace stagecoach
