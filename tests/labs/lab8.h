#pragma once
/// @file
/// The grader of lab 8: two conjugate operations, and a pair of linear layers that is cut over ranks.

#include <functional>
#include <vector>

#include "chapters/08_tensor_parallel/lab/linear_pair.h"
#include "tests/labs/grading.h"

namespace stagecoach::labs::lab8 {

/// The functions that the student writes; see chapters/08_tensor_parallel/lab/.
struct Answer {
  std::function<Tensor(const Tensor& x, Communicator& comm)> copy_to_ranks;
  std::function<Tensor(const Tensor& x, Communicator& comm)> sum_over_ranks;
  std::function<lab::LinearPair(const lab::LinearPair& whole, int rank, int ranks)> cut_pair;
  std::function<Tensor(const Tensor& x, const lab::LinearPair& mine, Communicator& comm)> pair_forward;
};

std::vector<Criterion> criteria(const Answer& answer);

}  // namespace stagecoach::labs::lab8
