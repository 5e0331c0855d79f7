#pragma once
/// @file
/// Overlap in the backward of a layer cut by outputs: the ranks add up the gradient of its input while each computes
/// the gradients of its weights.
///
/// |                | time goes to the right                                        |
/// |----------------|----------------------------------------------------------------|
/// | without        | gradient of x, all-reduce of it, gradients of the weights      |
/// | the rank       | gradient of x, gradients of the weights                        |
/// | beside it      |                all-reduce of the gradient of x                 |
///
/// What is added, and in which order, stays the same. Source: Korthikanti et al., "Reducing activation recomputation in
/// large transformer models", 2022; Megatron-LM calls it async_grad_allreduce.

#include "core/tensor.h"
#include "parallel/comm/comm_thread.h"

namespace stagecoach {

/// Returns y, the output of a recorded layer (a linear one or a convolution) whose first input all ranks have, with
/// another backward: it also adds up the gradients of that input over the ranks of `comm_thread`, which must outlive
/// the graph; null: this rank runs alone, for a plan. So it replaces copy_to_ranks, and y must not be in use elsewhere.
Tensor with_overlapped_sum(Tensor y, CommThread* comm_thread);

}  // namespace stagecoach
