#pragma once
/// @file
/// The grader of lab 1: an operation with a gradient, and gradient accumulation.

#include <functional>
#include <vector>

#include "chapters/01_single_device/lab/samples.h"
#include "nn/module.h"
#include "tests/labs/grading.h"

namespace stagecoach::labs::lab1 {

/// The functions that the student writes; see chapters/01_single_device/lab/.
struct Answer {
  std::function<Tensor(const Tensor& x, const Tensor& scale)> scaled_tanh;
  std::function<double(Module& model, const std::vector<lab::Samples>& microbatches)> accumulate;
};

std::vector<Criterion> criteria(const Answer& answer);

}  // namespace stagecoach::labs::lab1
