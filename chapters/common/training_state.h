#pragma once
/// @file
/// All that a training has changed, as one device would hold it: from the ranks to rank 0, and back.

#include <string>

#include "nn/module.h"
#include "nn/optimizer.h"
#include "parallel/gather.h"

namespace stagecoach {

/// Of the whole model, wherever its parts lie.
struct TrainingState {
  NamedTensors weights;    ///< parameters, then buffers
  NamedTensors optimizer;  ///< its state
};

/// Rank 0 gets the state of all ranks; the others nothing. `model` and `optimizer` are the rank's own. All ranks call
/// it together. Without `layers` there is one rank, and the state is a handle on its tensors.
TrainingState gather_state(Communicator& comm, const LayerRanks& layers, const Module& model,
                           const Optimizer& optimizer);

/// Copies a rank's part of `state` into its model and optimizer. Throws DataError, which begins with `what`, where they
/// do not fit.
void take_state(const LayerRanks& layers, int rank, const TrainingState& state, const Module& model,
                Optimizer& optimizer, const std::string& what);

}  // namespace stagecoach
