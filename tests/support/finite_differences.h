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

inline double dot(const Tensor& a, const std::vector<double>& y) {
  const auto x = values_of(a);
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    sum += x[i] * y[i];
  }
  return sum;
}

/// d(function . upstream) / d(input), element by element, on the CPU. `inputs` are the same again afterwards.
inline Tensor finite_differences(const Function& function, const std::vector<Tensor>& inputs, std::size_t which,
                                 const Tensor& upstream) {
  constexpr double kStep = 1e-6;
  const NoGrad no_grad;
  Tensor input = inputs[which];
  const std::vector<double> weights = upstream.to_vector<double>();
  const std::vector<double> kept = input.to_vector<double>();
  std::vector<double> gradient(kept.size());
  // The elements change on the CPU: those of a GPU cannot be written one by one.
  std::vector<double> values = kept;
  const auto with = [&](std::size_t i, double value) {
    values[i] = value;
    input.copy_from(Tensor::from(values, input.shape()));
    return dot(function(inputs), weights);
  };
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const double above = with(i, kept[i] + kStep);
    const double below = with(i, kept[i] - kStep);
    values[i] = kept[i];
    gradient[i] = (above - below) / (2 * kStep);
  }
  input.copy_from(Tensor::from(kept, input.shape()));
  return Tensor::from(gradient, input.shape());
}

/// Checks the gradients of `function` towards all of `inputs`, copied to `device`, under a random upstream gradient:
/// all at once against finite differences, and each asked for alone against that.
inline void check_gradients(Device device, const Function& function, std::vector<Tensor> inputs) {
  for (Tensor& input : inputs) {
    input = input.to(device);
  }
  const auto want = [&](auto wanted) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      inputs[i] = inputs[i].clone().set_requires_grad(wanted(i));
    }
  };
  want([](std::size_t) { return true; });
  const Tensor output = function(inputs);
  const Tensor upstream = random_tensor(output.shape(), "upstream", DType::float64, device);
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
