#pragma once
/// @file
/// The grader of lab 7: copies between asynchronous devices, and the clock ticks of one controller.

#include <functional>
#include <vector>

#include "chapters/07_one_controller/lab/move.h"
#include "chapters/07_one_controller/lab/tick_step.h"
#include "tests/labs/grading.h"

namespace stagecoach::labs::lab7 {

/// The functions that the student writes; see chapters/07_one_controller/lab/.
struct Answer {
  std::function<lab::Move(const Tensor& x, Device to)> start_move;
  std::function<Tensor(const lab::Move& move)> finish_move;
  std::function<Tensor(const lab::TickStep& step)> tick_step;
};

std::vector<Criterion> criteria(const Answer& answer);

}  // namespace stagecoach::labs::lab7
