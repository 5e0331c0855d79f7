// The gradient of every operation against finite differences.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <tuple>

#include "core/kernels/kernels.h"
#include "core/ops.h"
#include "tests/support/devices.h"
#include "tests/support/finite_differences.h"

namespace stagecoach {
namespace {

using test::check_gradients;
using test::On;
using test::random_tensor;
using Inputs = std::vector<Tensor>;

const Shape kAnyShapes[] = {{}, {1}, {7}, {3, 5}, {2, 1, 3}, {1, 3, 4, 5}, {33}};
const Shape kImages[] = {{1, 1, 1, 1}, {2, 3, 4, 4}, {3, 1, 5, 7}, {1, 5, 3, 1}, {17, 2, 2, 3}, {9, 7, 1, 3}};
const Shape kRows[] = {{1, 1}, {1, 7}, {5, 1}, {3, 4}, {17, 3}, {2, 33}};

std::string shape_and_device(const ::testing::TestParamInfo<On<Shape>>& info) {
  return fmt::format("{}_shape_{}", test::name_of(info.param.device), fmt::join(info.param.what, "_"));
}

class OnShapes : public ::testing::TestWithParam<On<Shape>> {
 protected:
  static Device device() { return GetParam().device; }
  static const Shape& shape() { return GetParam().what; }
  static void check(const test::Function& function, const Inputs& inputs) {
    check_gradients(device(), function, inputs);
  }
  static Tensor labels_of_rows() { return test::random_labels(shape()[0], shape()[1], device()); }
};

class AnyShape : public OnShapes {};
INSTANTIATE_TEST_SUITE_P(Gradients, AnyShape, ::testing::ValuesIn(test::on_devices(kAnyShapes)), shape_and_device);

TEST_P(AnyShape, Add) {
  check([](const Inputs& in) { return add(in[0], in[1]); }, {random_tensor(shape(), "a"), random_tensor(shape(), "b")});
}

TEST_P(AnyShape, Scale) {
  check([](const Inputs& in) { return scale(in[0], -1.7); }, {random_tensor(shape(), "x")});
}

TEST_P(AnyShape, Relu) {
  check([](const Inputs& in) { return relu(in[0]); }, {random_tensor(shape(), "x")});
}

TEST_P(AnyShape, MeanSquaredErrorMean) {
  check([](const Inputs& in) { return mean_squared_error(in[0], in[1]); },
        {random_tensor(shape(), "a"), random_tensor(shape(), "b")});
}

TEST_P(AnyShape, MeanSquaredErrorSum) {
  check([](const Inputs& in) { return mean_squared_error(in[0], in[1], Reduction::sum); },
        {random_tensor(shape(), "a"), random_tensor(shape(), "b")});
}

TEST_P(AnyShape, Reshape) {
  check([](const Inputs& in) { return scale(in[0].reshape({1, -1}), 3); }, {random_tensor(shape(), "x")});
}

class Images : public OnShapes {};
INSTANTIATE_TEST_SUITE_P(Gradients, Images, ::testing::ValuesIn(test::on_devices(kImages)), shape_and_device);

TEST_P(Images, GlobalAveragePool) {
  check([](const Inputs& in) { return global_average_pool(in[0]); }, {random_tensor(shape(), "x")});
}

TEST_P(Images, Flatten) {
  check([](const Inputs& in) { return flatten(in[0]); }, {random_tensor(shape(), "x")});
}

TEST_P(Images, NarrowFirstRow) {
  check([](const Inputs& in) { return in[0].narrow(0, 1); }, {random_tensor(shape(), "x")});
}

TEST_P(Images, NarrowLastRows) {
  check([](const Inputs& in) { return in[0].narrow(in[0].size(0) / 2, (in[0].size(0) + 1) / 2); },
        {random_tensor(shape(), "x")});
}

/// batch_norm on inputs x, weight and bias.
test::Function batch_norm_of(bool training, const std::function<void(Tensor&)>& sum_over_ranks = {}) {
  return [=](const Inputs& in) {
    Tensor mean = random_tensor(in[1].shape(), "running mean", DType::float64, in[1].device());
    Tensor variance = Tensor::full(in[1].shape(), 0.8, DType::float64, in[1].device());
    return batch_norm(in[0], in[1], in[2], mean, variance, {.training = training, .sum_over_ranks = sum_over_ranks});
  };
}

Inputs batch_norm_inputs(const Shape& x) {
  return {random_tensor(x, "x"), random_tensor({x[1]}, "weight"), random_tensor({x[1]}, "bias")};
}

TEST_P(Images, BatchNormInTraining) {
  if (shape().numel() == shape()[1]) {
    GTEST_SKIP() << "one value per channel has no variance";
  }
  check(batch_norm_of(true), batch_norm_inputs(shape()));
}

TEST_P(Images, BatchNormInInference) { check(batch_norm_of(false), batch_norm_inputs(shape())); }

class Rows : public OnShapes {};
INSTANTIATE_TEST_SUITE_P(Gradients, Rows, ::testing::ValuesIn(test::on_devices(kRows)), shape_and_device);

TEST_P(Rows, NarrowColumns) {
  check([](const Inputs& in) { return narrow_columns(in[0], in[0].size(1) / 2, (in[0].size(1) + 1) / 2); },
        {random_tensor(shape(), "x")});
}

TEST_P(Rows, CatColumns) {
  check(
      [](const Inputs& in) {
        return cat_columns({in[0], in[1], in[0]});
      },
      {random_tensor(shape(), "a"), random_tensor(shape(), "b")});
}

TEST_P(Rows, Softmax) {
  check([](const Inputs& in) { return softmax(in[0]); }, {random_tensor(shape(), "x")});
}

TEST_P(Rows, LogSoftmax) {
  check([](const Inputs& in) { return log_softmax(in[0]); }, {random_tensor(shape(), "x")});
}

TEST_P(Rows, CrossEntropyMean) {
  const Tensor labels = labels_of_rows();
  check([&](const Inputs& in) { return cross_entropy(in[0], labels); }, {random_tensor(shape(), "x")});
}

TEST_P(Rows, CrossEntropySum) {
  const Tensor labels = labels_of_rows();
  check([&](const Inputs& in) { return cross_entropy(in[0], labels, Reduction::sum); }, {random_tensor(shape(), "x")});
}

TEST_P(Rows, BatchNormInTraining) {
  if (shape()[0] == 1) {
    GTEST_SKIP() << "one value per channel has no variance";
  }
  check(batch_norm_of(true), batch_norm_inputs(shape()));
}

TEST_P(Rows, BatchNormInInference) { check(batch_norm_of(false), batch_norm_inputs(shape())); }

/// Samples, inputs, outputs.
using LinearCase = std::array<std::int64_t, 3>;
const LinearCase kLinearCases[] = {{1, 1, 1}, {3, 5, 4}, {17, 3, 1}, {1, 9, 7}, {9, 1, 8}, {2, 17, 9}};
class LinearGradients : public ::testing::TestWithParam<On<LinearCase>> {};
INSTANTIATE_TEST_SUITE_P(Gradients, LinearGradients, ::testing::ValuesIn(test::on_devices(kLinearCases)),
                         [](const auto& tested) {
                           return fmt::format("{}_{}", test::name_of(tested.param.device),
                                              fmt::join(tested.param.what, "_"));
                         });

TEST_P(LinearGradients, WithBias) {
  const auto [samples, inputs, outputs] = GetParam().what;
  check_gradients(
      GetParam().device, [](const Inputs& in) { return linear(in[0], in[1], in[2]); },
      {random_tensor({samples, inputs}, "x"), random_tensor({outputs, inputs}, "w"), random_tensor({outputs}, "b")});
}

TEST_P(LinearGradients, WithoutBias) {
  const auto [samples, inputs, outputs] = GetParam().what;
  check_gradients(GetParam().device, [](const Inputs& in) { return linear(in[0], in[1]); },
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
using ConvParam = On<std::tuple<ConvCase, std::int64_t, std::int64_t>>;

std::string name_of_conv(const ::testing::TestParamInfo<ConvParam>& info) {
  const auto& [c, stride, padding] = info.param.what;
  return fmt::format("{}_x{}_outputs{}_kernel{}_stride{}_padding{}", test::name_of(info.param.device),
                     fmt::join(c.x, "_"), c.outputs, c.kernel, stride, padding);
}

/// Every case with every stride and padding. On a GPU, where each evaluation is many calls, only some pairs: its
/// kernels are compared with the CPU's elsewhere, in kernel_twins_matrix_test.cpp.
std::vector<ConvParam> conv_params() {
  std::vector<ConvParam> params;
  for (const Device device : test::devices()) {
    for (const ConvCase& c : kConvCases) {
      for (std::int64_t stride = 1; stride <= 3; ++stride) {
        for (std::int64_t padding = 0; padding <= 3; ++padding) {
          if (device.type == DeviceType::cpu || padding + 1 == stride || (stride == 1 && padding == 1)) {
            params.push_back({device, {c, stride, padding}});
          }
        }
      }
    }
  }
  return params;
}

class ConvGradients : public ::testing::TestWithParam<ConvParam> {
 protected:
  void SetUp() override {
    const auto& [c, stride, padding] = GetParam().what;
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
INSTANTIATE_TEST_SUITE_P(Gradients, ConvGradients, ::testing::ValuesIn(conv_params()), name_of_conv);

TEST_P(ConvGradients, WithBias) {
  check_gradients(GetParam().device, [this](const Inputs& in) { return conv2d(in[0], in[1], in[2], settings_); },
                  {x_, weight_, bias_});
}

TEST_P(ConvGradients, WithoutBias) {
  check_gradients(GetParam().device, [this](const Inputs& in) { return conv2d(in[0], in[1], {}, settings_); },
                  {x_, weight_});
}

struct PoolCase {
  Shape x;
  Window window;
};
const PoolCase kPoolCases[] = {{{1, 1, 1, 1}, {1, 1, 0}}, {{2, 3, 4, 6}, {2, 2, 0}},
                               {{2, 1, 5, 7}, {2, 2, 0}},  // a row and a column are left over
                               {{3, 2, 5, 5}, {3, 2, 0}},  // overlapping windows
                               {{1, 2, 7, 4}, {3, 2, 1}},  // with padding
                               {{2, 2, 3, 5}, {3, 1, 1}},  // every input in nine windows
                               {{2, 1, 1, 1}, {2, 2, 1}},  // almost all padding
                               {{1, 3, 8, 7}, {2, 3, 0}},  // inputs in no window at all
                               {{1, 1, 9, 1}, {4, 2, 2}}};
std::string name_of_pool(const ::testing::TestParamInfo<On<PoolCase>>& info) {
  const auto& [x, window] = info.param.what;
  return fmt::format("{}_x{}_kernel{}_stride{}_padding{}", test::name_of(info.param.device), fmt::join(x, "_"),
                     window.kernel, window.stride, window.padding);
}

class PoolGradients : public ::testing::TestWithParam<On<PoolCase>> {};
INSTANTIATE_TEST_SUITE_P(Gradients, PoolGradients, ::testing::ValuesIn(test::on_devices(kPoolCases)), name_of_pool);

TEST_P(PoolGradients, MaxPool2d) {
  check_gradients(GetParam().device, [](const Inputs& in) { return max_pool2d(in[0], GetParam().what.window); },
                  {random_tensor(GetParam().what.x, "x")});
}

class GradientsOf : public ::testing::TestWithParam<Device> {};
INSTANTIATE_TEST_SUITE_P(Gradients, GradientsOf, ::testing::ValuesIn(test::devices()), test::device_name);

// Not at the kink, so finite differences cannot say: the header promises 0 there.
TEST_P(GradientsOf, ReluIsZeroAtZero) {
  Tensor x = test::of({0, -0.0, 1}, {3}, GetParam()).set_requires_grad(true);
  backward(relu(x), test::of({5, 6, 7}, {3}, GetParam()));
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{0, 0, 7}));
}

// As if another rank held the same samples: twice the batch has the statistics of the batch, and each half gets half of
// the gradient of both, which is that of one.
TEST_P(GradientsOf, BatchNormOfABatchThatIsShared) {
  const auto double_it = [](Tensor& tensor) { kernels(tensor.device()).scale(tensor, 2, tensor); };
  for (const Shape& shape : {Shape{3, 2, 1, 5}, Shape{1, 3, 1, 1}, Shape{4, 3}}) {
    SCOPED_TRACE(to_string(shape));
    check_gradients(GetParam(), batch_norm_of(true, double_it), batch_norm_inputs(shape));
  }
}

// Among equals the first one gets the whole gradient.
TEST_P(GradientsOf, MaxPoolGoesToTheFirstOfEquals) {
  Tensor x = Tensor::full({1, 1, 2, 2}, 4, DType::float64, GetParam()).set_requires_grad(true);
  backward(max_pool2d(x, {2, 2, 0}), test::of({3}, {1, 1, 1, 1}, GetParam()));
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{3, 0, 0, 0}));
}

}  // namespace
}  // namespace stagecoach
