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
#include "tests/support/devices.h"

namespace stagecoach {
namespace {

using cpu::ConvShape;
using cpu::LinearShape;
using test::Output;
using test::random_values;

const std::int64_t kSamples[] = {1, 2, 7, 8, 15, 16, 17, 33};

template <class T>
void check_linear(Device device, const LinearShape& s, bool with_bias) {
  const auto x = random_values<T>(s.samples * s.inputs, 1);
  const auto weight = random_values<T>(s.outputs * s.inputs, 2);
  const auto bias = random_values<T>(s.outputs, 3);
  const auto grad_y = random_values<T>(s.samples * s.outputs, 4);
  const T* b = with_bias ? bias.data() : nullptr;
  Output<T> y(s.samples * s.outputs), plain_y(s.samples * s.outputs);
  cpu::fast::linear(device, s, x.data(), weight.data(), b, y.data());
  cpu::plain::linear(s, x.data(), weight.data(), b, plain_y.data());
  EXPECT_TRUE(y.near(plain_y, s.inputs));
  Output<T> grad_x(s.samples * s.inputs), plain_x(s.samples * s.inputs);
  cpu::fast::linear_grad_input(device, s, grad_y.data(), weight.data(), grad_x.data());
  cpu::plain::linear_grad_input(s, grad_y.data(), weight.data(), plain_x.data());
  EXPECT_TRUE(grad_x.near(plain_x, s.outputs));
  Output<T> grad_weight(s.outputs * s.inputs), plain_weight(s.outputs * s.inputs);
  cpu::fast::linear_grad_weight(device, s, grad_y.data(), x.data(), grad_weight.data());
  cpu::plain::linear_grad_weight(s, grad_y.data(), x.data(), plain_weight.data());
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

template <class T>
void check_conv2d(Device device, const ConvShape& s, bool with_bias) {
  const std::int64_t in = s.samples * s.channels * s.height * s.width;
  const std::int64_t out = s.samples * s.outputs * s.rows() * s.columns();
  const std::int64_t taps = s.channels * s.window.kernel * s.window.kernel;
  const auto x = random_values<T>(in, 1);
  const auto weight = random_values<T>(s.outputs * taps, 2);
  const auto bias = random_values<T>(s.outputs, 3);
  const auto grad_y = random_values<T>(out, 4);
  const T* b = with_bias ? bias.data() : nullptr;
  Output<T> y(out), plain_y(out);
  cpu::fast::conv2d(device, s, x.data(), weight.data(), b, y.data());
  cpu::plain::conv2d(s, x.data(), weight.data(), b, plain_y.data());
  EXPECT_TRUE(y.near(plain_y, taps)) << "forward";
  Output<T> grad_x(in), plain_x(in);
  cpu::fast::conv2d_grad_input(device, s, grad_y.data(), weight.data(), grad_x.data());
  cpu::plain::conv2d_grad_input(s, grad_y.data(), weight.data(), plain_x.data());
  EXPECT_TRUE(grad_x.near(plain_x, s.outputs * s.window.kernel * s.window.kernel)) << "input gradient";
  Output<T> grad_weight(s.outputs * taps), plain_weight(s.outputs * taps);
  cpu::fast::conv2d_grad_weight(device, s, grad_y.data(), x.data(), grad_weight.data());
  cpu::plain::conv2d_grad_weight(s, grad_y.data(), x.data(), plain_weight.data());
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
    const auto x = random_values<float>(s.samples * s.channels * s.height * s.width, 1);
    const auto grad_y = random_values<float>(s.samples * s.outputs * s.rows() * s.columns(), 2);
    const auto weight = random_values<float>(s.outputs * s.channels * s.window.kernel * s.window.kernel, 3);
    std::vector<std::array<std::vector<float>, 3>> results;
    for (const int count : {1, 2, 3}) {
      const Device device = test::fresh_device();
      const test::ThreadsFor threads(device, count);
      auto& [y, grad_x, grad_weight] = results.emplace_back();
      y.resize(grad_y.size());
      grad_x.resize(x.size());
      grad_weight.resize(weight.size());
      cpu::fast::conv2d<float>(device, s, x.data(), weight.data(), nullptr, y.data());
      cpu::fast::conv2d_grad_input(device, s, grad_y.data(), weight.data(), grad_x.data());
      cpu::fast::conv2d_grad_weight(device, s, grad_y.data(), x.data(), grad_weight.data());
    }
    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(results[0], results[2]);
  }
}

// What an image gives does not depend on the images beside it: a batch may be cut into any micro-batches.
TEST(FastConv2d, ImagesOfAWideLayerAreAlone) {
  const Device device = test::fresh_device();
  for (const ConvShape& s : kWideShapes) {
    const std::int64_t in = s.channels * s.height * s.width;
    const std::int64_t out = s.outputs * s.rows() * s.columns();
    const auto x = random_values<float>(s.samples * in, 1);
    const auto grad_y = random_values<float>(s.samples * out, 2);
    const auto weight = random_values<float>(s.outputs * s.channels * s.window.kernel * s.window.kernel, 3);
    std::vector<float> y(grad_y.size());
    std::vector<float> y_alone(grad_y.size());
    std::vector<float> grad_x(x.size());
    std::vector<float> grad_x_alone(x.size());
    cpu::fast::conv2d<float>(device, s, x.data(), weight.data(), nullptr, y.data());
    cpu::fast::conv2d_grad_input(device, s, grad_y.data(), weight.data(), grad_x.data());
    ConvShape one = s;
    one.samples = 1;
    for (std::int64_t n = 0; n < s.samples; ++n) {
      cpu::fast::conv2d<float>(device, one, x.data() + n * in, weight.data(), nullptr, y_alone.data() + n * out);
      cpu::fast::conv2d_grad_input(device, one, grad_y.data() + n * out, weight.data(), grad_x_alone.data() + n * in);
    }
    EXPECT_EQ(y, y_alone);
    EXPECT_EQ(grad_x, grad_x_alone);
  }
}

// Enough positions that the weight gradient takes the rows of an image in several goes.
TEST(FastConv2d, AgreesWithPlainOnALargeImage) {
  const Device device = test::fresh_device();
  check_conv2d(device, {2, 2, 70, 41, 5, {3, 1, 1}});
}

}  // namespace
}  // namespace stagecoach
