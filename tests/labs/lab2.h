#pragma once
/// @file
/// The grader of lab 2: messages between ranks without a deadlock, and a batch through stages on any ranks.

#include <functional>
#include <vector>

#include "chapters/02_naive_model_parallel/lab/batch_step.h"
#include "tests/labs/grading.h"

namespace stagecoach::labs::lab2 {

/// The functions that the student writes; see chapters/02_naive_model_parallel/lab/.
struct Answer {
  std::function<Tensor(Communicator& comm, const Tensor& mine, int distance)> shift;
  std::function<double(const lab::BatchStep& step)> batch_step;
};

std::vector<Criterion> criteria(const Answer& answer);

}  // namespace stagecoach::labs::lab2
