#pragma once
/// @file
/// The grader of lab 4: a 1F1B generator and the store of weight versions.

#include <functional>
#include <vector>

#include "chapters/04_pipedream/lab/version_store.h"
#include "parallel/schedule/schedule.h"
#include "tests/labs/grading.h"

namespace stagecoach::labs::lab4 {

/// The functions that the student writes; see chapters/04_pipedream/lab/.
struct Answer {
  std::function<Schedule(int microbatches, const std::vector<int>& limits)> one_f_one_b;
  std::function<Tensor(lab::VersionStore& store, int microbatch)> weights_for_forward;
  std::function<Tensor(lab::VersionStore& store, int microbatch)> weights_for_backward;
  std::function<void(lab::VersionStore& store, const Tensor& gradient, double rate)> update;
};

std::vector<Criterion> criteria(const Answer& answer);

}  // namespace stagecoach::labs::lab4
