// What batch_norm computes, against the formula of core/ops.h written out.

#include <cmath>

#include "tests/core/operations.h"

namespace stagecoach {
namespace {

using test::Values;
using test::values_of;

class BatchNorm : public test::Operations {};
INSTANTIATE_TEST_SUITE_P(Types, BatchNorm, test::devices_and_types(), test::device_and_type);

/// Mean and variance (divided by the count) of each channel of x [N, C, S].
struct Moments {
  explicit Moments(const Tensor& x) : mean(static_cast<std::size_t>(x.size(1))), variance(mean.size()) {
    const Values in = values_of(x);
    const std::size_t plane = in.size() / mean.size() / static_cast<std::size_t>(x.size(0));
    count = static_cast<double>(in.size() / mean.size());
    for (std::size_t i = 0; i < in.size(); ++i) {
      mean[i / plane % mean.size()] += in[i] / count;
    }
    for (std::size_t i = 0; i < in.size(); ++i) {
      const double away = in[i] - mean[i / plane % mean.size()];
      variance[i / plane % mean.size()] += away * away / count;
    }
  }
  Values mean;
  Values variance;
  double count;
};

/// (x - mean) / sqrt(variance + epsilon) * weight + bias
Values normalised(const Tensor& x, const Values& mean, const Values& variance, double epsilon, const Values& weight,
                  const Values& bias) {
  Values y = values_of(x);
  const std::size_t plane = y.size() / mean.size() / static_cast<std::size_t>(x.size(0));
  for (std::size_t i = 0; i < y.size(); ++i) {
    const std::size_t c = i / plane % mean.size();
    y[i] = (y[i] - mean[c]) / std::sqrt(variance[c] + epsilon) * weight[c] + bias[c];
  }
  return y;
}

TEST_P(BatchNorm, InTraining) {
  for (const Shape& shape : {Shape{7, 3}, Shape{2, 3, 5, 4}, Shape{5, 3, 1, 1}, Shape{1, 3, 1, 2}}) {
    SCOPED_TRACE(to_string(shape));
    const Tensor x = random(shape, "x");
    const Tensor weight = random({3}, "weight");
    const Tensor bias = random({3}, "bias");
    Tensor mean = typed({1, 2, 3}, {3});
    Tensor variance = typed({4, 5, 6}, {3});
    const Tensor y = batch_norm(x, weight, bias, mean, variance, {.momentum = 0.3, .epsilon = 0.01});
    const Moments batch(x);
    EXPECT_TRUE(near(y, normalised(x, batch.mean, batch.variance, 0.01, values_of(weight), values_of(bias)), shape));
    Values wanted_mean(3);
    Values wanted_variance(3);
    for (std::size_t c = 0; c < 3; ++c) {
      const double unbiased = batch.variance[c] * batch.count / (batch.count - 1);
      wanted_mean[c] = 0.7 * static_cast<double>(1 + c) + 0.3 * batch.mean[c];
      wanted_variance[c] = 0.7 * static_cast<double>(4 + c) + 0.3 * unbiased;
    }
    EXPECT_TRUE(near(mean, wanted_mean, {3}));
    EXPECT_TRUE(near(variance, wanted_variance, {3}));
  }
}

TEST_P(BatchNorm, InInference) {
  for (const Shape& shape : {Shape{7, 3}, Shape{2, 3, 5, 4}, Shape{1, 3}}) {
    SCOPED_TRACE(to_string(shape));
    const Tensor x = random(shape, "x");
    const Tensor weight = random({3}, "weight");
    const Tensor bias = random({3}, "bias");
    const Tensor mean = typed({1, 2, 3}, {3});
    const Tensor variance = typed({4, 5, 6}, {3});
    const Tensor y = batch_norm(x, weight, bias, mean, variance, {.training = false, .epsilon = 0.01});
    EXPECT_TRUE(near(y, normalised(x, {1, 2, 3}, {4, 5, 6}, 0.01, values_of(weight), values_of(bias)), shape));
    EXPECT_TRUE(near(mean, {1, 2, 3}, {3})) << "inference must leave the running mean";
    EXPECT_TRUE(near(variance, {4, 5, 6}, {3})) << "inference must leave the running variance";
  }
}

// A large mean beside a small spread: the mean of squares minus the square of the mean would give noise, even below 0.
TEST_P(BatchNorm, OfAConstantChannelHasNoNegativeVariance) {
  for (const double constant : {0.1, 1000.1, -12345.678, 3e6}) {
    SCOPED_TRACE(constant);
    const Tensor x = Tensor::full({33, 2, 7, 3}, constant, dtype(), device());
    Tensor mean = Tensor::zeros({2}, dtype(), device());
    Tensor variance = Tensor::zeros({2}, dtype(), device());
    const Tensor ones = Tensor::full({2}, 1, dtype(), device());
    for (int step = 0; step < 20; ++step) {
      const Tensor y = batch_norm(x, ones, ones, mean, variance);
      for (const double value : values_of(y)) {
        ASSERT_TRUE(std::isfinite(value)) << "step " << step;
      }
      for (const double value : values_of(variance)) {
        ASSERT_GE(value, 0) << "step " << step;
        ASSERT_LE(value, 1e-9 * constant * constant) << "step " << step;
      }
    }
    for (const double value : values_of(batch_norm(x, ones, ones, mean, variance, {.training = false}))) {
      ASSERT_TRUE(std::isfinite(value));
    }
  }
}

}  // namespace
}  // namespace stagecoach
