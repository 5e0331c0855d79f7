// The gradient of every operation against finite differences.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <tuple>

#include "core/ops.h"
#include "tests/support/finite_differences.h"

namespace stagecoach {
namespace {

using test::check_gradients;
using test::random_tensor;
using Inputs = std::vector<Tensor>;

const Shape kAnyShapes[] = {{}, {1}, {7}, {3, 5}, {2, 1, 3}, {1, 3, 4, 5}, {33}};
const Shape kImages[] = {{1, 1, 1, 1}, {2, 3, 4, 4}, {3, 1, 5, 7}, {1, 5, 3, 1}, {17, 2, 2, 3}, {9, 7, 1, 3}};
const Shape kRows[] = {{1, 1}, {1, 7}, {5, 1}, {3, 4}, {17, 3}, {2, 33}};

std::string printable(const ::testing::TestParamInfo<Shape>& info) {
  return fmt::format("shape_{}", fmt::join(info.param, "_"));
}

class AnyShape : public ::testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(Gradients, AnyShape, ::testing::ValuesIn(kAnyShapes), printable);

TEST_P(AnyShape, Add) {
  check_gradients([](const Inputs& in) { return add(in[0], in[1]); },
                  {random_tensor(GetParam(), "a"), random_tensor(GetParam(), "b")});
}

TEST_P(AnyShape, Scale) {
  check_gradients([](const Inputs& in) { return scale(in[0], -1.7); }, {random_tensor(GetParam(), "x")});
}

TEST_P(AnyShape, Relu) {
  check_gradients([](const Inputs& in) { return relu(in[0]); }, {random_tensor(GetParam(), "x")});
}

TEST_P(AnyShape, MeanSquaredErrorMean) {
  check_gradients([](const Inputs& in) { return mean_squared_error(in[0], in[1]); },
                  {random_tensor(GetParam(), "a"), random_tensor(GetParam(), "b")});
}

TEST_P(AnyShape, MeanSquaredErrorSum) {
  check_gradients([](const Inputs& in) { return mean_squared_error(in[0], in[1], Reduction::sum); },
                  {random_tensor(GetParam(), "a"), random_tensor(GetParam(), "b")});
}

TEST_P(AnyShape, Reshape) {
  check_gradients([](const Inputs& in) { return scale(in[0].reshape({1, -1}), 3); }, {random_tensor(GetParam(), "x")});
}

class Images : public ::testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(Gradients, Images, ::testing::ValuesIn(kImages), printable);

TEST_P(Images, GlobalAveragePool) {
  check_gradients([](const Inputs& in) { return global_average_pool(in[0]); }, {random_tensor(GetParam(), "x")});
}

TEST_P(Images, Flatten) {
  check_gradients([](const Inputs& in) { return flatten(in[0]); }, {random_tensor(GetParam(), "x")});
}

TEST_P(Images, NarrowFirstRow) {
  check_gradients([](const Inputs& in) { return in[0].narrow(0, 1); }, {random_tensor(GetParam(), "x")});
}

TEST_P(Images, NarrowLastRows) {
  check_gradients([](const Inputs& in) { return in[0].narrow(in[0].size(0) / 2, (in[0].size(0) + 1) / 2); },
                  {random_tensor(GetParam(), "x")});
}

/// batch_norm on inputs x, weight and bias.
test::Function batch_norm_of(bool training) {
  return [training](const Inputs& in) {
    Tensor mean = random_tensor(in[1].shape(), "running mean");
    Tensor variance = Tensor::full(in[1].shape(), 0.8, DType::float64);
    return batch_norm(in[0], in[1], in[2], mean, variance, {.training = training});
  };
}

Inputs batch_norm_inputs(const Shape& x) {
  return {random_tensor(x, "x"), random_tensor({x[1]}, "weight"), random_tensor({x[1]}, "bias")};
}

TEST_P(Images, BatchNormInTraining) {
  if (GetParam().numel() == GetParam()[1]) {
    GTEST_SKIP() << "one value a channel has no variance";
  }
  check_gradients(batch_norm_of(true), batch_norm_inputs(GetParam()));
}

TEST_P(Images, BatchNormInInference) { check_gradients(batch_norm_of(false), batch_norm_inputs(GetParam())); }

class Rows : public ::testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(Gradients, Rows, ::testing::ValuesIn(kRows), printable);

TEST_P(Rows, Softmax) {
  check_gradients([](const Inputs& in) { return softmax(in[0]); }, {random_tensor(GetParam(), "x")});
}

TEST_P(Rows, LogSoftmax) {
  check_gradients([](const Inputs& in) { return log_softmax(in[0]); }, {random_tensor(GetParam(), "x")});
}

TEST_P(Rows, CrossEntropyMean) {
  const Tensor labels = test::random_labels(GetParam()[0], GetParam()[1]);
  check_gradients([&](const Inputs& in) { return cross_entropy(in[0], labels); }, {random_tensor(GetParam(), "x")});
}

TEST_P(Rows, CrossEntropySum) {
  const Tensor labels = test::random_labels(GetParam()[0], GetParam()[1]);
  check_gradients([&](const Inputs& in) { return cross_entropy(in[0], labels, Reduction::sum); },
                  {random_tensor(GetParam(), "x")});
}

TEST_P(Rows, BatchNormInTraining) {
  if (GetParam()[0] == 1) {
    GTEST_SKIP() << "one value a channel has no variance";
  }
  check_gradients(batch_norm_of(true), batch_norm_inputs(GetParam()));
}

TEST_P(Rows, BatchNormInInference) { check_gradients(batch_norm_of(false), batch_norm_inputs(GetParam())); }

/// Samples, inputs, outputs.
class LinearGradients : public ::testing::TestWithParam<std::array<std::int64_t, 3>> {};
INSTANTIATE_TEST_SUITE_P(Gradients, LinearGradients,
                         ::testing::Values(std::array<std::int64_t, 3>{1, 1, 1}, std::array<std::int64_t, 3>{3, 5, 4},
                                           std::array<std::int64_t, 3>{17, 3, 1}, std::array<std::int64_t, 3>{1, 9, 7},
                                           std::array<std::int64_t, 3>{9, 1, 8},
                                           std::array<std::int64_t, 3>{2, 17, 9}));

TEST_P(LinearGradients, WithBias) {
  const auto [samples, inputs, outputs] = GetParam();
  check_gradients(
      [](const Inputs& in) { return linear(in[0], in[1], in[2]); },
      {random_tensor({samples, inputs}, "x"), random_tensor({outputs, inputs}, "w"), random_tensor({outputs}, "b")});
}

TEST_P(LinearGradients, WithoutBias) {
  const auto [samples, inputs, outputs] = GetParam();
  check_gradients([](const Inputs& in) { return linear(in[0], in[1]); },
                  {random_tensor({samples, inputs}, "x"), random_tensor({outputs, inputs}, "w")});
}

/// Shape of x, outputs, kernel.
struct ConvCase {
  Shape x;
  std::int64_t outputs;
  std::int64_t kernel;
};
const ConvCase kConvCases[] = {
    {{1, 1, 1, 1}, 1, 1}, {{2, 3, 5, 4}, 2, 3}, {{3, 1, 7, 3}, 5, 2},
    {{9, 2, 3, 3}, 1, 1}, {{1, 2, 6, 5}, 7, 5}, {{2, 1, 4, 9}, 3, 4},
};

/// Case, stride, padding.
using ConvParam = std::tuple<ConvCase, std::int64_t, std::int64_t>;

std::string name_of_conv(const ::testing::TestParamInfo<ConvParam>& info) {
  const auto& [c, stride, padding] = info.param;
  return fmt::format("x{}_outputs{}_kernel{}_stride{}_padding{}", fmt::join(c.x, "_"), c.outputs, c.kernel, stride,
                     padding);
}

class ConvGradients : public ::testing::TestWithParam<ConvParam> {
 protected:
  void SetUp() override {
    const auto& [c, stride, padding] = GetParam();
    settings_ = {stride, padding};
    x_ = random_tensor(c.x, "x");
    weight_ = random_tensor({c.outputs, c.x[1], c.kernel, c.kernel}, "weight");
    bias_ = random_tensor({c.outputs}, "bias");
    if (std::min(c.x[2], c.x[3]) + 2 * padding < c.kernel) {
      GTEST_SKIP() << "the kernel does not fit";
    }
  }
  Conv2dSettings settings_;
  Tensor x_;
  Tensor weight_;
  Tensor bias_;
};
INSTANTIATE_TEST_SUITE_P(Gradients, ConvGradients,
                         ::testing::Combine(::testing::ValuesIn(kConvCases), ::testing::Values(1, 2, 3),
                                            ::testing::Values(0, 1, 2, 3)),
                         name_of_conv);

TEST_P(ConvGradients, WithBias) {
  check_gradients([this](const Inputs& in) { return conv2d(in[0], in[1], in[2], settings_); }, {x_, weight_, bias_});
}

TEST_P(ConvGradients, WithoutBias) {
  check_gradients([this](const Inputs& in) { return conv2d(in[0], in[1], {}, settings_); }, {x_, weight_});
}

struct PoolCase {
  Shape x;
  Window window;
};
class PoolGradients : public ::testing::TestWithParam<PoolCase> {};
INSTANTIATE_TEST_SUITE_P(Gradients, PoolGradients,
                         ::testing::Values(PoolCase{{1, 1, 1, 1}, {1, 1, 0}}, PoolCase{{2, 3, 4, 6}, {2, 2, 0}},
                                           PoolCase{{2, 1, 5, 7}, {2, 2, 0}},  // a row and a column are left over
                                           PoolCase{{3, 2, 5, 5}, {3, 2, 0}},  // overlapping windows
                                           PoolCase{{1, 2, 7, 4}, {3, 2, 1}},  // with padding
                                           PoolCase{{2, 2, 3, 5}, {3, 1, 1}},  // every input in nine windows
                                           PoolCase{{2, 1, 1, 1}, {2, 2, 1}},  // almost all padding
                                           PoolCase{{1, 3, 8, 7}, {2, 3, 0}},  // inputs in no window at all
                                           PoolCase{{1, 1, 9, 1}, {4, 2, 2}}));

TEST_P(PoolGradients, MaxPool2d) {
  check_gradients([](const Inputs& in) { return max_pool2d(in[0], GetParam().window); },
                  {random_tensor(GetParam().x, "x")});
}

// Not at the kink, so finite differences cannot say: the header promises 0 there.
TEST(Gradients, OfReluIsZeroAtZero) {
  Tensor x = test::of({0, -0.0, 1}, {3}).set_requires_grad(true);
  backward(relu(x), test::of({5, 6, 7}, {3}));
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{0, 0, 7}));
}

// Among equals the first one gets the whole gradient.
TEST(Gradients, OfMaxPoolGoesToTheFirstOfEquals) {
  Tensor x = Tensor::full({1, 1, 2, 2}, 4, DType::float64).set_requires_grad(true);
  backward(max_pool2d(x, {2, 2, 0}), test::of({3}, {1, 1, 1, 1}));
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{3, 0, 0, 0}));
}

}  // namespace
}  // namespace stagecoach
