#pragma once
/// @file
/// Compares the gradients that backward gives with central finite differences, in double.

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "core/autograd/backward.h"
#include "tests/support/tensors.h"

namespace stagecoach::test {

using Function = std::function<Tensor(const std::vector<Tensor>&)>;

inline double dot(const Tensor& a, const Tensor& b) {
  const auto x = values_of(a);
  const auto y = values_of(b);
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    sum += x[i] * y[i];
  }
  return sum;
}

/// d(function . upstream) / d(input), element by element. `inputs` are the same again afterwards.
inline Tensor finite_differences(const Function& function, const std::vector<Tensor>& inputs, std::size_t which,
                                 const Tensor& upstream) {
  constexpr double kStep = 1e-6;
  const NoGrad no_grad;
  Tensor input = inputs[which];
  std::vector<double> gradient(static_cast<std::size_t>(input.numel()));
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const double before = input.data<double>()[i];
    input.mutable_data<double>()[i] = before + kStep;
    const double above = dot(function(inputs), upstream);
    input.mutable_data<double>()[i] = before - kStep;
    const double below = dot(function(inputs), upstream);
    input.mutable_data<double>()[i] = before;
    gradient[i] = (above - below) / (2 * kStep);
  }
  return Tensor::from(gradient, input.shape());
}

/// Checks the gradients of `function` towards all of `inputs`, under a random upstream gradient: all at once
/// against finite differences, and each asked for alone against that.
inline void check_gradients(const Function& function, std::vector<Tensor> inputs) {
  const auto want = [&](auto wanted) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      inputs[i] = inputs[i].clone().set_requires_grad(wanted(i));
    }
  };
  want([](std::size_t) { return true; });
  const Tensor output = function(inputs);
  const Tensor upstream = random_tensor(output.shape(), "upstream");
  const Tensor kept = upstream.clone();
  backward(output, upstream);
  EXPECT_TRUE(same_bytes(upstream, kept)) << "the caller's gradient was written to";
  std::vector<Tensor> gradients;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    gradients.push_back(inputs[i].grad());
    ASSERT_TRUE(gradients[i].defined()) << "input " << i;
    EXPECT_TRUE(close(gradients[i], finite_differences(function, inputs, i, kept), 1e-5, 1e-3)) << "input " << i;
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    want([i](std::size_t other) { return other == i; });
    backward(function(inputs), kept.clone());
    EXPECT_TRUE(same_bytes(inputs[i].grad(), gradients[i])) << "input " << i << " alone";
    for (std::size_t other = 0; other < inputs.size(); ++other) {
      EXPECT_EQ(inputs[other].grad().defined(), other == i) << "input " << other;
    }
  }
}

}  // namespace stagecoach::test
