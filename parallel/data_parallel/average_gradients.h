#pragma once
/// @file
/// What the replicas of a stage do before an update.

#include "nn/named_tensors.h"
#include "parallel/comm/communicator.h"

namespace stagecoach {

/// Replaces the gradient of each of `parameters` by the sum over all ranks of `replicas`, made in their order, divided
/// by `batches`: each batch gave the gradient of its mean loss. A parameter without a gradient counts as zero. All
/// replicas call it together, and then have the same bytes.
void average_gradients(const NamedTensors& parameters, int batches, Communicator& replicas);

/// Throws Error unless `parameters` have the same bytes on all ranks of `replicas`, which call it together.
void require_equal_replicas(const NamedTensors& parameters, Communicator& replicas);

}  // namespace stagecoach
