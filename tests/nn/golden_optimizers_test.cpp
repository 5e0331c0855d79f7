/// @file
/// Fifty updates with clipped gradients and changing rates against the same updates by PyTorch, which
/// golden_optimizers.py stored.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "nn/make_optimizer.h"
#include "nn/rate_schedule.h"
#include "nn/safetensors.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

constexpr int kUpdatesOfGolden = 50;
constexpr double kTolerance = 1e-12;

struct GoldenUpdates {
  const char* name;
  MakeOptimizer make;
  RateSchedule rate;
  double max_norm;
};

constexpr RateSchedule kWarmCosine{RateShape::cosine, 5, kUpdatesOfGolden};
constexpr RateSchedule kThirds{RateShape::step, 0, kUpdatesOfGolden};

const GoldenUpdates kGoldenUpdates[] = {
    {"adamw", adamw({.learning_rate = 0.01, .weight_decay = 0.1}), kWarmCosine, 20},
    {"adagrad", adagrad({.learning_rate = 0.05, .weight_decay = 0.01}), kThirds, 15},
    {"adam", adam({.learning_rate = 0.01, .weight_decay = 0.1}), kWarmCosine, 20},
    {"sgd", sgd({.learning_rate = 0.05, .momentum = 0.9}), kThirds, 15},
};

/// The same integer arithmetic as in golden_optimizers.py; all values are exact.
std::vector<double> noise(std::int64_t count, std::uint32_t number) {
  std::vector<double> values;
  for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(count); ++i) {
    const std::uint32_t bits = (i * 2654435761U + number * 2246822519U + 12345U) >> 16;
    values.push_back((static_cast<double>(bits % 256) - 128) / 128);
  }
  return values;
}

Tensor leaf(const Shape& shape, std::uint32_t number, Device device) {
  return Tensor::from(noise(shape.numel(), number), shape, device).set_requires_grad(true);
}

/// The parameter itself, plus noise.
Tensor gradient_of(const Tensor& parameter, std::uint32_t number) {
  std::vector<double> values = parameter.to_vector<double>();
  const std::vector<double> more = noise(parameter.numel(), number);
  std::transform(values.begin(), values.end(), more.begin(), values.begin(), std::plus());
  return Tensor::from(values, parameter.shape(), parameter.device());
}

double greatest_difference(const std::vector<double>& found, const std::vector<double>& expected) {
  double greatest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    greatest = std::max(greatest, std::abs(found[i] - expected[i]));
  }
  return greatest;
}

class GoldenOptimizers : public testing::TestWithParam<test::On<GoldenUpdates>> {};

TEST_P(GoldenOptimizers, UpdateAsPyTorchDoes) {
  const auto& [device, run] = GetParam();
  std::map<std::string, std::vector<double>> golden;
  for (const auto& [name, tensor] : load_tensors(STAGECOACH_GOLDEN_DIR "/golden_optimizers.safetensors").tensors) {
    if (name.starts_with(std::string(run.name) + "/")) {
      golden.emplace(name.substr(name.find('/') + 1), tensor.to_vector<double>());
    }
  }
  const NamedTensors parameters{{"weight", leaf({40, 30}, 1000, device)}, {"bias", leaf({30}, 1001, device)}};
  const auto optimizer = run.make(parameters);
  const double rate = optimizer->learning_rate();
  optimizer->clip_norm(run.max_norm);
  if (run.name == std::string("adamw")) {
    optimizer->decay_weights_only();
  }
  for (std::uint32_t step = 0; step < kUpdatesOfGolden; ++step) {
    double squares = 0;
    for (std::uint32_t i = 0; i < 2; ++i) {
      Tensor parameter = parameters[i].second;
      parameter.set_grad(gradient_of(parameter, 2 * step + i));
      squares += sum_of_squares(parameter.grad());
    }
    EXPECT_NEAR(std::sqrt(squares), golden.at("norms")[step], kTolerance) << "step " << step;
    optimizer->set_learning_rate(rate * run.rate.factor(step));
    EXPECT_NEAR(optimizer->learning_rate(), golden.at("rates")[step], kTolerance) << "step " << step;
    optimizer->step();
  }
  for (const auto& [name, parameter] : parameters) {
    EXPECT_LE(greatest_difference(parameter.to_vector<double>(), golden.at(name)), kTolerance) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Runs, GoldenOptimizers, testing::ValuesIn(test::on_devices(kGoldenUpdates)),
                         [](const auto& of) { return test::name_of(of.param.device) + "_" + of.param.what.name; });

}  // namespace
}  // namespace stagecoach
