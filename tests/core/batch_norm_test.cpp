// What batch_norm computes, against the formula of core/ops.h written out.

#include <cmath>

#include "core/autograd/backward.h"
#include "core/kernels/kernels.h"
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

/// What `rest` [N, 3, S] adds to the sums of a batch of which it is the rest: first the sums of each channel and their
/// number, then the squares about `mean`, and nothing in backward, where no gradient reaches it.
class RestOfTheBatch {
 public:
  RestOfTheBatch(const Tensor& rest, const Values& mean) {
    const Values in = values_of(rest);
    const auto plane = static_cast<std::size_t>(rest.size(2) * rest.size(3));
    for (std::size_t i = 0; i < in.size(); ++i) {
      const std::size_t c = i / plane % 3;
      sums_[c] += in[i];
      sums_[3] += c == 0 ? 1 : 0;
      squares_[c] += (in[i] - mean[c]) * (in[i] - mean[c]);
    }
  }
  void add_to(Tensor& tensor) {
    asked.push_back(tensor.numel());
    const Values& mine = asked.size() == 1 ? sums_ : asked.size() == 2 ? squares_ : nothing_;
    const Tensor here = test::typed(mine, tensor.shape(), tensor.dtype(), tensor.device());
    kernels(tensor.device()).add_scaled(here, 1, tensor);
  }
  std::vector<std::int64_t> asked = {};  ///< how many numbers each call had

 private:
  Values sums_ = Values(4);
  Values squares_ = Values(3);
  Values nothing_ = Values(6);
};

TEST_P(BatchNorm, OfAPartIsByTheStatisticsOfTheWhole) {
  const Tensor whole = random({5, 3, 2, 4}, "x");
  const Moments batch(whole);
  const Values weight{1, -2, 0.5};
  const Values bias{0, 1, 2};
  const Values expected = normalised(whole, batch.mean, batch.variance, 0.01, weight, bias);
  for (const std::int64_t samples : {0, 2, 5}) {
    SCOPED_TRACE(samples);
    RestOfTheBatch rest(whole.narrow(samples, 5 - samples), batch.mean);
    Tensor x = whole.narrow(0, samples).clone().set_requires_grad(true);
    Tensor mean = typed({0, 0, 0}, {3});
    Tensor variance = typed({0, 0, 0}, {3});
    const Tensor y = batch_norm(x, typed(weight, {3}), typed(bias, {3}), mean, variance,
                                {.momentum = 1, .epsilon = 0.01, .sum_over_ranks = [&](Tensor& t) { rest.add_to(t); }});
    EXPECT_TRUE(near(y, Values(expected.begin(), expected.begin() + samples * 24), x.shape()));
    EXPECT_TRUE(near(mean, batch.mean, {3}));
    Values unbiased = batch.variance;
    for (double& each : unbiased) {
      each *= 40.0 / 39;
    }
    EXPECT_TRUE(near(variance, unbiased, {3}));
    backward(y, Tensor::full(y.shape(), 1, dtype(), device()));
    EXPECT_EQ(rest.asked, (std::vector<std::int64_t>{4, 3, 6}));
  }
}

TEST_P(BatchNorm, AsksNobodyInInference) {
  const Tensor x = random({2, 3}, "x");
  const Tensor ones = Tensor::full({3}, 1, dtype(), device());
  const auto refuse = [](Tensor&) { FAIL() << "the running statistics need no others"; };
  batch_norm(x, ones, ones, ones.clone(), ones.clone(), {.training = false, .sum_over_ranks = refuse});
}

/// The bytes of an output and of the gradients of x, addend (if there is one), weight and bias.
std::vector<Values> results(const std::function<Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&)>& f,
                            std::vector<Tensor> inputs) {
  for (Tensor& input : inputs) {
    input = input.defined() ? input.clone().set_requires_grad(true) : input;
  }
  const Tensor y = f(inputs[0], inputs[1], inputs[2], inputs[3]);
  backward(y, test::random_tensor(y.shape(), "grad", y.dtype(), y.device()));
  std::vector<Values> all{values_of(y)};
  for (const Tensor& input : inputs) {
    all.push_back(input.defined() ? values_of(input.grad()) : Values());
  }
  return all;
}

TEST_P(BatchNorm, WithReluAndAddendHasTheBytesOfSeparateOperations) {
  for (const Shape& shape : {Shape{7, 3}, Shape{4, 3, 8, 8}, Shape{3, 3, 5, 5}, Shape{2, 3, 5, 1}}) {
    for (const bool training : {true, false}) {
      for (const Tensor& addend : {Tensor(), random(shape, "addend")}) {
        SCOPED_TRACE(fmt::format("{}, {}, {}", to_string(shape), training, addend.defined()));
        const std::vector<Tensor> inputs{random(shape, "x"), random({3}, "weight"), random({3}, "bias"), addend};
        const auto norm = [&](const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& a,
                              Activation activation) {
          return batch_norm(x, w, b, typed({0.1, 0.2, 0.3}, {3}), typed({1, 2, 3}, {3}),
                            {.training = training, .activation = activation}, a);
        };
        const auto fused = [&](const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& a) {
          return norm(x, w, b, a, Activation::relu);
        };
        const auto separate = [&](const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& a) {
          const Tensor y = norm(x, w, b, {}, Activation::none);
          return relu(a.defined() ? add(y, a) : y);
        };
        EXPECT_EQ(results(fused, inputs), results(separate, inputs));
      }
    }
  }
}

// A large mean beside a small spread: the mean of squares minus the square of the mean would give noise, even below 0.
void expect_no_negative_variance(DType dtype, Device device, const BatchNormSettings& settings) {
  for (const double constant : {0.1, 1000.1, -12345.678, 3e6}) {
    SCOPED_TRACE(constant);
    const Tensor x = Tensor::full({33, 2, 7, 3}, constant, dtype, device);
    Tensor mean = Tensor::zeros({2}, dtype, device);
    Tensor variance = Tensor::zeros({2}, dtype, device);
    const Tensor ones = Tensor::full({2}, 1, dtype, device);
    for (int step = 0; step < 20; ++step) {
      const Tensor y = batch_norm(x, ones, ones, mean, variance, settings);
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

TEST_P(BatchNorm, OfAConstantChannelHasNoNegativeVariance) { expect_no_negative_variance(dtype(), device(), {}); }

TEST_P(BatchNorm, OfAConstantChannelThatIsSharedHasNoNegativeVariance) {
  const auto double_it = [](Tensor& tensor) { kernels(tensor.device()).scale(tensor, 2, tensor); };
  expect_no_negative_variance(dtype(), device(), {.sum_over_ranks = double_it});
}

}  // namespace
}  // namespace stagecoach
