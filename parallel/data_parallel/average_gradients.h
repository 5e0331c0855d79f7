#pragma once
/// @file
/// Gradient averaging over the replicas of a stage, before an update.

#include "nn/named_tensors.h"
#include "parallel/comm/communicator.h"

namespace stagecoach {

/// Replaces the gradient of each of `parameters` by its sum over all ranks of `replicas`, added in rank order, divided
/// by `batches`, since each batch contributes the gradient of its mean loss. A missing gradient counts as zero. All
/// replicas call it together, and get the same bytes.
void average_gradients(const NamedTensors& parameters, int batches, Communicator& replicas);

/// Throws Error unless `parameters` have the same bytes on all ranks of `replicas`, which call it together.
void require_equal_replicas(const NamedTensors& parameters, Communicator& replicas);

}  // namespace stagecoach
