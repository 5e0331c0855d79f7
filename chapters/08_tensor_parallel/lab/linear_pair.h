#pragma once
/// @file
/// Lab 8, part 2: two linear layers, the first cut by columns and the second by rows.

#include "core/tensor.h"
#include "parallel/comm/communicator.h"

namespace stagecoach::lab {

/// Two linear layers with a relu between them: C inputs, H hidden features, K outputs. As everywhere in the library, a
/// weight is [outputs, inputs]. So cutting the chapter's matrix A by columns means cutting `a` along its first
/// dimension, and cutting B by rows means cutting `b` along its second one.
struct LinearPair {
  Tensor a;       ///< [H, C]
  Tensor a_bias;  ///< [H]
  Tensor b;       ///< [K, H]
  Tensor b_bias;  ///< [K]
};

/// Returns what rank `rank` of `ranks` holds of `whole`: its H / ranks hidden features, which are next to each other,
/// the first ones on rank 0, and all of b_bias. `ranks` divides H. All four are on the device of `whole`, are leaves
/// that require a gradient, and have memory of their own, just as much as they need: `whole` is freed afterwards.
LinearPair cut_pair(const LinearPair& whole, int rank, int ranks);

/// Returns b relu(a x + a_bias) + b_bias for each row of x [N, C]: [N, K], equal on all ranks. `mine` is this rank's
/// slice, and x is equal on all ranks, which call this together. The forward takes one all-reduce, the backward another
/// one if x requires a gradient, and none otherwise. Afterwards each rank has the gradients of its slices, and all
/// ranks have the same, complete gradients of x and b_bias.
Tensor pair_forward(const Tensor& x, const LinearPair& mine, Communicator& comm);

}  // namespace stagecoach::lab
