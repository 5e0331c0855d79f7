#pragma once
/// @file
/// What a training on several ranks leaves behind, step by step, and whether two trainings left the same.

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "nn/optimizer.h"
#include "tests/support/tensors.h"

namespace stagecoach::test {

constexpr int kSteps = 5;

/// Of each step.
struct Record {
  std::vector<NamedTensors> gradients;
  std::vector<NamedTensors> weights;
  std::vector<double> losses = std::vector<double>(kSteps);
};

/// `what` of each tensor, on the CPU and for itself; an undefined one stays so.
inline NamedTensors copies(const NamedTensors& tensors, const std::function<Tensor(const Tensor&)>& what) {
  NamedTensors all;
  for (const auto& [name, tensor] : tensors) {
    const Tensor one = what(tensor);
    all.emplace_back(name, one.defined() ? one.to(Device{}).clone() : one);
  }
  return all;
}

/// Enters the gradients, makes the optimizer's step, and enters the weights.
inline void note(Record& record, Optimizer& optimizer) {
  record.gradients.push_back(copies(optimizer.parameters(), [](const Tensor& p) { return p.grad(); }));
  optimizer.step();
  optimizer.zero_grad();
  record.weights.push_back(copies(optimizer.parameters(), [](const Tensor& p) { return p; }));
}

inline bool equal(const NamedTensors& a, const NamedTensors& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].second.defined() != b[i].second.defined() ||
        (a[i].second.defined() && !same_bytes(a[i].second, b[i].second))) {
      ADD_FAILURE() << "'" << a[i].first << "' differs";
      return false;
    }
  }
  return a.size() == b.size();
}

inline void expect_equal(const Record& a, const Record& b) {
  ASSERT_EQ(a.weights.size(), b.weights.size());
  for (std::size_t step = 0; step < a.weights.size(); ++step) {
    EXPECT_TRUE(equal(a.gradients[step], b.gradients[step])) << "gradients of step " << step;
    EXPECT_TRUE(equal(a.weights[step], b.weights[step])) << "weights after step " << step;
  }
}

}  // namespace stagecoach::test
