#pragma once
/// @file
/// The grader of lab 6: buckets of gradients, and the reducer that sums them over the ranks.

#include <functional>
#include <vector>

#include "chapters/06_ddp/lab/reducer.h"
#include "tests/labs/grading.h"

namespace stagecoach::labs::lab6 {

/// The functions that the student writes; see chapters/06_ddp/lab/.
struct Answer {
  std::function<lab::BucketLayout(const std::vector<std::size_t>& bytes, std::size_t first_cap, std::size_t cap)>
      assign_buckets;
  std::function<void(lab::Reducer& reducer, const std::vector<std::size_t>& unused, Communicator& comm)> start_step;
  std::function<void(lab::Reducer& reducer, std::size_t parameter, const Tensor& gradient, Communicator& comm)>
      gradient_ready;
  std::function<std::vector<Tensor>(lab::Reducer& reducer, Communicator& comm)> finish_step;
};

std::vector<Criterion> criteria(const Answer& answer);

}  // namespace stagecoach::labs::lab6
