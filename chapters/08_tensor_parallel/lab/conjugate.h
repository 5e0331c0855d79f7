#pragma once
/// @file
/// Lab 8, part 1: the two conjugate operations of tensor parallelism, called f and g in the paper and in the chapter.

#include "core/tensor.h"
#include "parallel/comm/communicator.h"

namespace stagecoach::lab {

// All ranks call an operation together, forward and backward, with tensors of one shape on their own devices.
// comm.all_reduce(tensor) replaces `tensor` by the sum over all ranks. `comm` outlives the graph.
//
// Both are operations as in lab 1: the result has a Node whose input is x if should_record({&x}), and none otherwise.
// They write neither to x nor to the gradient that a backward is given. The functions of parallel/tensor_parallel/ are
// not allowed: they do what you write here.

/// f. Returns the elements of x, which are equal on all ranks, and sends nothing. Each rank goes on to compute
/// something of its own from them, so the gradient of x is the sum of the ranks' gradients: one all-reduce.
Tensor copy_to_ranks(const Tensor& x, Communicator& comm);

/// g. Returns the sum of the ranks' x: one all-reduce. All ranks go on to compute the same from it, and have the same
/// gradient of it, so that is the gradient of x on each rank. The backward sends nothing.
Tensor sum_over_ranks(const Tensor& x, Communicator& comm);

}  // namespace stagecoach::lab
