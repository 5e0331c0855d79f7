// The fast kernels against the plain ones, around every width at which their code takes another path.

#include "tests/core/fast_kernels.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "core/kernels/cpu/conv2d.h"
#include "core/kernels/cpu/linear.h"
#include "core/kernels/cpu/wide_conv2d.h"
#include "core/kernels/kernels.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using cpu::ConvShape;
using cpu::LinearShape;
using test::Output;
using test::uniform_tensor;

const std::int64_t kSamples[] = {1, 2, 7, 8, 15, 16, 17, 33};

template <class T>
void check_linear(Device device, const LinearShape& s, bool with_bias) {
  const Tensor x = uniform_tensor<T>({s.samples, s.inputs}, 1, device);
  const Tensor weight = uniform_tensor<T>({s.outputs, s.inputs}, 2, device);
  const Tensor bias = uniform_tensor<T>({s.outputs}, 3, device);
  const Tensor grad_y = uniform_tensor<T>({s.samples, s.outputs}, 4, device);
  Tensor none;
  Output<T> y({s.samples, s.outputs}, device), plain_y({s.samples, s.outputs}, device);
  kernels(device).linear(x, weight, with_bias ? bias : none, y.tensor());
  cpu::plain::linear(s, x.data<T>(), weight.data<T>(), with_bias ? bias.data<T>() : nullptr, plain_y.data());
  EXPECT_TRUE(y.near(plain_y, s.inputs));
  Output<T> grad_x(x.shape(), device), plain_x(x.shape(), device);
  kernels(device).linear_grad_input(grad_y, weight, grad_x.tensor());
  cpu::plain::linear_grad_input(s, grad_y.data<T>(), weight.data<T>(), plain_x.data());
  EXPECT_TRUE(grad_x.near(plain_x, s.outputs));
  Output<T> grad_weight(weight.shape(), device), plain_weight(weight.shape(), device);
  kernels(device).linear_grad_weight(grad_y, x, grad_weight.tensor(), none);
  cpu::plain::linear_grad_weight(s, grad_y.data<T>(), x.data<T>(), plain_weight.data());
  EXPECT_TRUE(grad_weight.near(plain_weight, s.samples));
}

class FastLinear : public ::testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(Samples, FastLinear, ::testing::ValuesIn(kSamples));

TEST_P(FastLinear, AgreesWithPlain) {
  const Device device = test::fresh_device();
  const test::ThreadsFor threads(device, 2);
  for (const std::int64_t outputs : {1, 5, 6, 7, 8, 9, 17}) {
    for (const std::int64_t inputs : {1, 3, 15, 16, 17, 33, 100}) {
      const LinearShape shape{GetParam(), inputs, outputs};
      SCOPED_TRACE(fmt::format("{} samples, {} inputs, {} outputs", GetParam(), inputs, outputs));
      check_linear<float>(device, shape, true);
      check_linear<double>(device, shape, false);
    }
  }
}

struct ConvInputs {
  Tensor x;
  Tensor weight;
  Tensor grad_y;
};

template <class T>
ConvInputs conv_inputs(const ConvShape& s, Device device) {
  return {uniform_tensor<T>({s.samples, s.channels, s.height, s.width}, 1, device),
          uniform_tensor<T>({s.outputs, s.channels, s.window.kernel, s.window.kernel}, 2, device),
          uniform_tensor<T>({s.samples, s.outputs, s.rows(), s.columns()}, 3, device)};
}

template <class T>
void check_conv2d(Device device, const ConvShape& s, bool with_bias) {
  const ConvInputs inputs = conv_inputs<T>(s, device);
  const auto& [x, weight, grad_y] = inputs;
  const std::int64_t taps = s.window.kernel * s.window.kernel;
  const Tensor bias = uniform_tensor<T>({s.outputs}, 4, device);
  Tensor none;
  Output<T> y(grad_y.shape(), device), plain_y(grad_y.shape(), device);
  kernels(device).conv2d(x, weight, with_bias ? bias : none, s.window, y.tensor());
  cpu::plain::conv2d(s, x.data<T>(), weight.data<T>(), with_bias ? bias.data<T>() : nullptr, plain_y.data());
  EXPECT_TRUE(y.near(plain_y, s.channels * taps)) << "forward";
  Output<T> grad_x(x.shape(), device), plain_x(x.shape(), device);
  kernels(device).conv2d_grad_input(grad_y, weight, s.window, grad_x.tensor());
  cpu::plain::conv2d_grad_input(s, grad_y.data<T>(), weight.data<T>(), plain_x.data());
  EXPECT_TRUE(grad_x.near(plain_x, s.outputs * taps)) << "input gradient";
  Output<T> grad_weight(weight.shape(), device), plain_weight(weight.shape(), device);
  kernels(device).conv2d_grad_weight(grad_y, x, s.window, grad_weight.tensor(), none);
  cpu::plain::conv2d_grad_weight(s, grad_y.data<T>(), x.data<T>(), plain_weight.data());
  EXPECT_TRUE(grad_weight.near(plain_weight, s.samples * s.rows() * s.columns())) << "weight gradient";
}

/// Both types, with and without bias, if the kernel fits into the padded image.
void check_conv2d(Device device, const ConvShape& s) {
  if (std::min(s.height, s.width) + 2 * s.window.padding < s.window.kernel) {
    return;
  }
  SCOPED_TRACE(fmt::format("x [{}, {}, {}, {}], {} outputs, kernel {}, stride {}, padding {}", s.samples, s.channels,
                           s.height, s.width, s.outputs, s.window.kernel, s.window.stride, s.window.padding));
  check_conv2d<float>(device, s, true);
  check_conv2d<double>(device, s, false);
}

/// The kernel's extent. Stride may exceed it, and so may the padding.
class FastConv2dWindows : public ::testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(Kernel, FastConv2dWindows, ::testing::Values(1, 2, 3, 5, 7));

TEST_P(FastConv2dWindows, AgreeWithPlain) {
  const Device device = test::fresh_device();
  const test::ThreadsFor threads(device, 2);
  for (const std::int64_t stride : {1, 2, 3}) {
    for (const std::int64_t padding : {0, 1, 2, 3}) {
      const Window window{GetParam(), stride, padding};
      for (const auto& [height, width] : {std::pair{1, 1}, {2, 5}, {7, 4}, {9, 9}, {8, 13}}) {
        check_conv2d(device, {3, 2, height, width, 3, window});
      }
    }
  }
}

class FastConv2dChannels : public ::testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(Outputs, FastConv2dChannels, ::testing::Values(1, 5, 6, 7, 8, 9, 17));

TEST_P(FastConv2dChannels, AgreeWithPlain) {
  const Device device = test::fresh_device();
  const test::ThreadsFor threads(device, 2);
  for (const std::int64_t channels : {1, 5, 6, 7, 8, 9, 17}) {
    check_conv2d(device, {3, channels, 5, 4, GetParam(), {3, 1, 1}});
    check_conv2d(device, {2, channels, 3, 5, GetParam(), {2, 2, 0}});
  }
}

class FastConv2dSamples : public ::testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(Samples, FastConv2dSamples, ::testing::ValuesIn(kSamples));

TEST_P(FastConv2dSamples, AgreeWithPlain) {
  const Device device = test::fresh_device();
  const test::ThreadsFor threads(device, 2);
  check_conv2d(device, {GetParam(), 3, 6, 5, 7, {3, 1, 1}});
  check_conv2d(device, {GetParam(), 2, 5, 7, 2, {5, 2, 2}});
  check_conv2d(device, {GetParam(), 1, 4, 4, 1, {1, 3, 0}});
}

// Many channels (wide_conv2d.h). Tiles take one position of several images, or part of a row; vectors of channels are
// full and ragged; sums are added to once and several times; images make several blocks, and the largest several parts
// of one; strides leave inputs out, and borders are wide.
const ConvShape kWideShapes[] = {
    {3, 64, 4, 4, 64, {3, 1, 1}},  {2, 70, 5, 3, 65, {1, 1, 0}},   {2, 64, 8, 8, 96, {3, 2, 1}},
    {1, 81, 2, 2, 64, {3, 1, 1}},  {5, 64, 1, 1, 64, {1, 1, 0}},   {2, 66, 7, 7, 64, {5, 3, 2}},
    {1, 64, 3, 16, 64, {3, 1, 1}}, {3, 300, 2, 2, 67, {1, 1, 0}},  {2, 64, 9, 6, 64, {1, 2, 0}},
    {2, 64, 5, 7, 70, {2, 3, 0}},  {1, 64, 3, 3, 64, {3, 4, 3}},   {7, 65, 3, 5, 64, {4, 2, 3}},
    {9, 64, 7, 6, 64, {3, 1, 1}},  {3, 64, 20, 24, 64, {3, 1, 1}}, {1, 64, 23, 24, 80, {3, 2, 1}}};

TEST(FastConv2d, AgreesWithPlainOnWideLayers) {
  const Device device = test::fresh_device();
  const test::ThreadsFor threads(device, 2);
  for (const ConvShape& shape : kWideShapes) {
    EXPECT_TRUE(cpu::is_wide(shape));
    check_conv2d(device, shape);
  }
  EXPECT_FALSE(cpu::is_wide({2, 63, 9, 9, 64, {3, 1, 1}}));
  EXPECT_FALSE(cpu::is_wide({2, 64, 4, 4, 16, {3, 1, 1}}));
}

TEST(FastConv2d, ThreadsDoNotChangeAWideLayer) {
  for (const ConvShape& s : kWideShapes) {
    std::vector<std::array<std::vector<float>, 3>> results;
    for (const int count : {1, 2, 3}) {
      const Device device = test::fresh_device();
      const test::ThreadsFor threads(device, count);
      const auto [x, weight, grad_y] = conv_inputs<float>(s, device);
      Tensor y = Tensor::empty(grad_y.shape(), DType::float32, device);
      Tensor grad_x = Tensor::empty(x.shape(), DType::float32, device);
      Tensor grad_weight = Tensor::empty(weight.shape(), DType::float32, device);
      Tensor none;
      kernels(device).conv2d(x, weight, none, s.window, y);
      kernels(device).conv2d_grad_input(grad_y, weight, s.window, grad_x);
      kernels(device).conv2d_grad_weight(grad_y, x, s.window, grad_weight, none);
      results.push_back({y.to_vector<float>(), grad_x.to_vector<float>(), grad_weight.to_vector<float>()});
    }
    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(results[0], results[2]);
  }
}

// What an image gives does not depend on the images beside it: a batch may be cut into any micro-batches.
TEST(FastConv2d, ImagesOfAWideLayerAreAlone) {
  const Device device = test::fresh_device();
  for (const ConvShape& s : kWideShapes) {
    const auto [x, weight, grad_y] = conv_inputs<float>(s, device);
    Tensor y = Tensor::empty(grad_y.shape(), DType::float32, device);
    Tensor grad_x = Tensor::empty(x.shape(), DType::float32, device);
    kernels(device).conv2d(x, weight, {}, s.window, y);
    kernels(device).conv2d_grad_input(grad_y, weight, s.window, grad_x);
    for (std::int64_t n = 0; n < s.samples; ++n) {
      Tensor y_alone = Tensor::empty(y.narrow(n, 1).shape(), DType::float32, device);
      Tensor grad_x_alone = Tensor::empty(x.narrow(n, 1).shape(), DType::float32, device);
      kernels(device).conv2d(x.narrow(n, 1), weight, {}, s.window, y_alone);
      kernels(device).conv2d_grad_input(grad_y.narrow(n, 1), weight, s.window, grad_x_alone);
      EXPECT_TRUE(test::same_bytes(y.narrow(n, 1), y_alone));
      EXPECT_TRUE(test::same_bytes(grad_x.narrow(n, 1), grad_x_alone));
    }
  }
}

// Enough positions that the weight gradient takes the rows of an image in several goes.
TEST(FastConv2d, AgreesWithPlainOnALargeImage) {
  const Device device = test::fresh_device();
  check_conv2d(device, {2, 2, 70, 41, 5, {3, 1, 1}});
}

}  // namespace
}  // namespace stagecoach
