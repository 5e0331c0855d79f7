#pragma once
/// @file
/// Lab 9, part 1: an update whose gradients and optimizer state are cut over the ranks.

#include <vector>

#include "core/base/error.h"
#include "core/tensor.h"
#include "parallel/comm/communicator.h"

namespace stagecoach::lab {

/// Returns [part]: the shard of a rank, in memory of its own on the tensors' device.
///
/// The float32 `tensors`, which may have any shapes, are regarded as one flat tensor: the elements of one after those
/// of another, then as few zeros as make it divisible by `ranks`. Rank r's shard is part r of it. It may contain
/// several tensors, a part of one, or zeros only:
///
///     | weight [2, 3]     | bias [2] | 0 |     9 elements for 3 ranks, so part = 3
///     | rank 0  | rank 1  | rank 2       |
///
/// The flat tensor itself is never in memory, as there may be no room for it: besides its result, the function takes no
/// memory of the device.
Tensor shard_of(const std::vector<Tensor>& tensors, int rank, int ranks);

/// Given: SGD with momentum, for tensors of one length: velocity = momentum velocity + gradient, and
/// weights = weights - learning rate velocity. Views do as well.
inline void sgd_step(Tensor weights, Tensor velocity, const Tensor& gradient) {
  constexpr float kMomentum = 0.5F;
  constexpr float kLearningRate = 0.25F;
  STAGECOACH_CHECK(weights.numel() == gradient.numel() && velocity.numel() == gradient.numel(),
                   "sgd_step: expected tensors of one length, got {}, {} and {}", describe(weights), describe(velocity),
                   describe(gradient));
  auto* const w = weights.mutable_data<float>();
  auto* const v = velocity.mutable_data<float>();
  const auto* const g = gradient.data<float>();
  for (std::int64_t i = 0; i < gradient.numel(); ++i) {
    v[i] = kMomentum * v[i] + g[i];
    w[i] -= kLearningRate * v[i];
  }
}

/// Updates `weights` [ranks part], which are whole and equal on all ranks, and are so again when it returns.
/// `gradients` [ranks part] are those of this rank's samples; those of all ranks are to be summed (not averaged: each
/// sample already weighs 1 / N). `velocity` is undefined before the first step, and yours: each rank keeps [part], that
/// of its own shard. A step has two messages: a reduce-scatter, and an all-gather of the updated shards.
void sharded_update(Tensor& weights, const Tensor& gradients, Tensor& velocity, Communicator& comm);

}  // namespace stagecoach::lab
