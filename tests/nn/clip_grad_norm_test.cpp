// Clipping of gradients, against PyTorch's formula, and the order of its sums.

#include "nn/clip_grad_norm.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "nn/optimizer.h"
#include "nn/rate_schedule.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::random_tensor;
using test::same_bytes;

const Shape kShapes[] = {{3000}, {7, 5}, {}, {1024}};

/// Parameters with gradients on `device_of(index)`; the last has none.
template <class DeviceOf>
NamedTensors make_parameters(DType dtype, const DeviceOf& device_of) {
  NamedTensors parameters;
  for (std::size_t i = 0; i < std::size(kShapes); ++i) {
    const std::string name(1, static_cast<char>('a' + i));
    Tensor parameter = test::random_leaf(kShapes[i], name, dtype, device_of(i));
    parameter.set_grad(random_tensor(kShapes[i], "gradient " + name, dtype, device_of(i)));
    parameters.emplace_back(name, parameter);
  }
  parameters.emplace_back("unused", test::random_leaf({2}, "unused", dtype, device_of(0)));
  return parameters;
}

// A plan runs a step on devices whose tensors have no elements.
TEST(ClipGradNormOnMeta, ReadsNoNorm) {
  const NamedTensors parameters = make_parameters(DType::float32, [](std::size_t i) {
    return Device{DeviceType::meta, static_cast<int>(i % 2)};
  });
  EXPECT_NO_THROW(clip_grad_norm(parameters, 1));
}

class ClipGradNorm : public testing::TestWithParam<Device> {
 protected:
  static NamedTensors parameters(DType dtype) {
    return make_parameters(dtype, [](std::size_t) { return GetParam(); });
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, ClipGradNorm, testing::ValuesIn(test::devices()), test::device_name);

TEST_P(ClipGradNorm, ScalesByTheFormulaOfPyTorch) {
  for (const double max_norm : {0.5, 1e6}) {
    const NamedTensors clipped = parameters(DType::float64);
    clip_grad_norm(clipped, max_norm);
    const NamedTensors before = parameters(DType::float64);
    double square = 0;
    for (const auto& [name, parameter] : before) {
      square += parameter.grad().defined() ? sum_of_squares(parameter.grad()) : 0;
    }
    const double factor = std::min(1.0, max_norm / (std::sqrt(square) + 1e-6));
    EXPECT_EQ(factor < 1, max_norm == 0.5);
    for (std::size_t i = 0; i < std::size(kShapes); ++i) {
      const auto expected = before[i].second.grad().to_vector<double>();
      const auto got = clipped[i].second.grad().to_vector<double>();
      for (std::size_t e = 0; e < expected.size(); ++e) {
        EXPECT_NEAR(got[e], factor * expected[e], 1e-14);
      }
    }
    EXPECT_FALSE(clipped.back().second.grad().defined());
  }
}

/// The bytes are the same on one device and spread over several, with the sums that ranks would exchange, and on a GPU.
TEST_P(ClipGradNorm, DoesNotDependOnWhereTheParametersAre) {
  const NamedTensors expected = make_parameters(DType::float32, [](std::size_t) { return Device{}; });
  clip_grad_norm(expected, 0.5);
  const std::vector<Device> devices{test::fresh_device(), test::fresh_device()};
  const NamedTensors spread = make_parameters(DType::float32, [&](std::size_t i) { return devices[i % 2]; });
  clip_grad_norm(spread, 0.5);
  const NamedTensors here = parameters(DType::float32);
  clip_grad_norm(here, 0.5);
  const NamedTensors shared = parameters(DType::float32);
  clip_grad_norm(shared, 0.5, [&](const NamedTensors& gradients) { return sums_of_squares(gradients); });
  for (std::size_t i = 0; i < std::size(kShapes); ++i) {
    for (const NamedTensors& each : {spread, here, shared}) {
      EXPECT_TRUE(same_bytes(each[i].second.grad(), expected[i].second.grad())) << expected[i].first;
    }
  }
}

/// Blocks of 1,024 elements, each added by 32 threads, as kernels.h says: written out.
TEST_P(ClipGradNorm, AddsBlocksInTheOrderOfTheElements) {
  const Tensor tensor = random_tensor({3000}, "x", DType::float32, GetParam());
  const auto x = tensor.to_vector<float>();
  const auto by_32 = [](const std::vector<double>& terms) {
    std::vector<double> threads(32, 0);
    for (std::size_t i = 0; i < terms.size(); ++i) {
      threads[i % 32] += terms[i];
    }
    for (std::size_t half = 16; half > 0; half /= 2) {
      for (std::size_t t = 0; t < half; ++t) {
        threads[t] += threads[t + half];
      }
    }
    return threads[0];
  };
  std::vector<double> blocks;
  for (std::size_t first = 0; first < x.size(); first += 1024) {
    std::vector<double> squares;
    for (std::size_t i = first; i < std::min(first + 1024, x.size()); ++i) {
      squares.push_back(static_cast<double>(x[i]) * static_cast<double>(x[i]));
    }
    blocks.push_back(by_32(squares));
  }
  EXPECT_EQ(sums_of_squares({{"x", tensor}}), std::vector<double>{by_32(blocks)});
}

/// AdamW, clipping and a cosine together, as PyTorch documents clip_grad_norm_, AdamW and CosineAnnealingLR: 50 steps,
/// written out. The first parameter decays, the second does not.
TEST_P(ClipGradNorm, WithAdamwAndACosineFollowsThePlainLoop) {
  const Shape shapes[] = {{3, 5}, {7}};
  const AdamSettings s{.learning_rate = 0.05, .weight_decay = 0.1, .decoupled_decay = true};
  const RateSchedule schedule{.shape = RateShape::cosine, .steps = 50};
  NamedTensors parameters;
  std::vector<std::vector<double>> p, m, v;
  for (int k = 0; k < 2; ++k) {
    parameters.emplace_back(std::to_string(k), test::random_leaf(shapes[k], "p", DType::float64, GetParam()));
    p.push_back(parameters.back().second.to_vector<double>());
    m.emplace_back(p.back().size(), 0);
    v.emplace_back(p.back().size(), 0);
  }
  Adam optimizer(parameters, s);
  optimizer.clip_norm(1);
  optimizer.decay_weights_only();
  for (int step = 0; step < 50; ++step) {
    std::vector<std::vector<double>> g;
    double square = 0;
    for (int k = 0; k < 2; ++k) {
      const Tensor gradient = random_tensor(shapes[k], fmt::format("{} {}", k, step), DType::float64);
      parameters[static_cast<std::size_t>(k)].second.set_grad(gradient.to(GetParam()));
      g.push_back(gradient.to_vector<double>());
      for (const double each : g.back()) {
        square += each * each;
      }
    }
    optimizer.set_learning_rate(s.learning_rate * schedule.factor(step));
    optimizer.step();
    optimizer.zero_grad();
    const double rate = s.learning_rate * 0.5 * (1 + std::cos(std::numbers::pi * step / 50));
    for (std::size_t k = 0; k < 2; ++k) {
      for (std::size_t i = 0; i < p[k].size(); ++i) {
        const double d = g[k][i] * std::min(1.0, 1 / (std::sqrt(square) + 1e-6));
        p[k][i] *= k == 0 ? 1 - rate * s.weight_decay : 1;
        m[k][i] = s.beta1 * m[k][i] + (1 - s.beta1) * d;
        v[k][i] = s.beta2 * v[k][i] + (1 - s.beta2) * d * d;
        const double v_hat = v[k][i] / (1 - std::pow(s.beta2, step + 1));
        p[k][i] -= rate * m[k][i] / (1 - std::pow(s.beta1, step + 1)) / (std::sqrt(v_hat) + s.epsilon);
        EXPECT_NEAR(parameters[k].second.to_vector<double>()[i], p[k][i], 1e-12);
      }
    }
  }
}

/// A step clips first; the norm is that of all gradients.
TEST_P(ClipGradNorm, IsPartOfAnOptimizersStep) {
  Tensor parameter = Tensor::zeros({2}, DType::float64, GetParam()).set_requires_grad(true);
  Sgd optimizer({{"p", parameter}}, {.learning_rate = 1});
  optimizer.clip_norm(1);
  parameter.set_grad(Tensor::from(std::vector<double>{3, -4}, {2}, GetParam()));
  optimizer.step();
  const auto values = parameter.to_vector<double>();
  EXPECT_NEAR(values[0], -0.6, 1e-6);
  EXPECT_NEAR(values[1], 0.8, 1e-6);
}

}  // namespace
}  // namespace stagecoach
