#pragma once
/// @file
/// Lab 6, part 2: a rank's side of bucketed gradient reduction.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "chapters/06_ddp/lab/assign_buckets.h"
#include "core/tensor.h"
#include "parallel/comm/communicator.h"

namespace stagecoach::lab {

/// What a rank remembers during a step. `layout` and `sizes` are given and equal on all ranks. The other members are
/// yours to use or to leave, and are empty before the first step. They suffice; this header is not handed in.
struct Reducer {
  BucketLayout layout;
  std::vector<std::int64_t> sizes;  ///< the numbers (float32) in the gradient of each parameter

  std::vector<Tensor> flat = {};    ///< per bucket: what is summed, [n + k] (see below)
  std::vector<int> missing = {};    ///< per bucket: gradients that have not come yet
  std::vector<bool> is_ready = {};  ///< per parameter
  std::size_t launched = 0;         ///< buckets 0 … launched - 1 have been summed
};

// A step of a rank: start_step, then gradient_ready for each parameter that the loss depends on, in the order in which
// the backward of this rank computes them, then finish_step. Steps follow each other with the same Reducer.
//
// A bucket is summed by one call of comm.all_reduce, on this thread, with a float32 tensor [n + k] for a bucket of k
// parameters and n numbers: first the gradients in the order of the bucket, then one number per parameter, 1 if this
// rank uses the parameter in this step and 0 if not. The sum of those says how many ranks used it, so no other message
// is needed. A bucket is complete as soon as each of its parameters has its gradient or is known to be unused. It is
// summed before the call returns that completed it, unless a bucket before it is not complete: buckets are summed in
// their order. An unused parameter counts as zeros.

/// Begins a step. This rank's loss does not depend on the parameters `unused`.
void start_step(Reducer& reducer, const std::vector<std::size_t>& unused, Communicator& comm);

/// Takes the gradient of a parameter, [sizes[parameter]].
void gradient_ready(Reducer& reducer, std::size_t parameter, const Tensor& gradient, Communicator& comm);

/// Returns for each parameter the sum of its gradients over all ranks, [sizes[parameter]], and an undefined Tensor for
/// a parameter that no rank used. (Sums, not means: each image already weighs 1 / N.) Throws Error that names the
/// parameter, such as "parameter 3", if a gradient has not come although the parameter was not announced as unused. The
/// tensors may be views of `flat`: the caller is done with them before the next start_step. `comm` is there for its
/// device: all buckets have been summed by now.
std::vector<Tensor> finish_step(Reducer& reducer, Communicator& comm);

}  // namespace stagecoach::lab
