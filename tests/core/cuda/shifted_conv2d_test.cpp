// Convolutions by shifts of the pixels in shared memory, against the plain loops of the CPU.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/cuda_backend.h"
#include "core/kernels/cpu/conv2d.h"
#include "core/kernels/cuda/products.h"
#include "core/ops.h"
#include "core/random.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

constexpr Window kWindow{3, 1, 1};
constexpr Window kStride2{3, 2, 1};
constexpr int kColumns[] = {128, 192, 224, 256};  // of the tiles

/// Whole numbers from -8 to 8: TF32 holds them exactly, and float32 their sums, in any order.
Tensor whole_numbers(const Shape& shape, const char* name) {
  const Philox random(7, name);
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(random.below(i, 17)) - 8;
  }
  return Tensor::from(values, shape);
}

/// Images whose lines are groups of 8 columns for the tensor cores (8 pixels, or 4 of two samples), and others.
const std::vector<cpu::ConvShape> kShapes = {
    {1, 8, 1, 1, 128, kWindow},   {3, 16, 5, 7, 128, kWindow},  {1, 24, 8, 8, 128, kWindow},
    {5, 8, 8, 8, 128, kWindow},   {3, 32, 4, 4, 128, kWindow},  {4, 8, 3, 4, 128, kWindow},
    {1, 8, 32, 32, 128, kWindow}, {2, 8, 16, 16, 128, kWindow}, {20, 8, 3, 8, 128, kWindow},
    {0, 8, 4, 4, 128, kWindow},
};

class CudaShiftedConv2d : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_cuda()) {
      GTEST_SKIP() << test::why_no_cuda();
    }
    if (!cuda::has_warpgroups(test::kCuda)) {
      GTEST_SKIP() << "this GPU multiplies by warps, not by warpgroups, or the program was not compiled for it";
    }
  }
};
TEST_F(CudaShiftedConv2d, Forward) {
  for (const cpu::ConvShape& s : kShapes) {
    SCOPED_TRACE(fmt::format("[{}, {}, {}, {}]", s.samples, s.channels, s.height, s.width));
    const Tensor x = whole_numbers({s.samples, s.channels, s.height, s.width}, "x");
    const Tensor weight = whole_numbers({s.outputs, s.channels, 3, 3}, "weight");
    const Tensor bias = whole_numbers({s.outputs}, "bias");
    Tensor y = Tensor::empty({s.samples, s.outputs, s.height, s.width}, DType::float32);
    cpu::plain::conv2d(s, x.data<float>(), weight.data<float>(), bias.data<float>(), y.mutable_data<float>());
    for (const int columns : kColumns) {
      Tensor out = Tensor::empty(y.shape(), DType::float32, test::kCuda);
      cuda::shifted_conv2d(x.to(test::kCuda), weight.to(test::kCuda), bias.to(test::kCuda), out, columns);
      EXPECT_TRUE(test::same_bytes(out.to(Device{}), y)) << columns;
    }
  }
}

TEST_F(CudaShiftedConv2d, GradientOfTheInput) {
  for (cpu::ConvShape s : kShapes) {
    std::swap(s.channels, s.outputs);
    SCOPED_TRACE(fmt::format("[{}, {}, {}, {}]", s.samples, s.channels, s.height, s.width));
    const Tensor grad_y = whole_numbers({s.samples, s.outputs, s.height, s.width}, "grad");
    const Tensor weight = whole_numbers({s.outputs, s.channels, 3, 3}, "weight");
    Tensor grad_x = Tensor::empty({s.samples, s.channels, s.height, s.width}, DType::float32);
    cpu::plain::conv2d_grad_input(s, grad_y.data<float>(), weight.data<float>(), grad_x.mutable_data<float>());
    for (const int columns : kColumns) {
      Tensor out = Tensor::empty(grad_x.shape(), DType::float32, test::kCuda);
      cuda::shifted_conv2d_grad_input(grad_y.to(test::kCuda), weight.to(test::kCuda), out, columns);
      EXPECT_TRUE(test::same_bytes(out.to(Device{}), grad_x)) << columns;
    }
  }
}

/// Lines of y of 4, 8 and 16 pixels, and tiles that are not whole.
const std::vector<cpu::ConvShape> kStridedShapes = {
    {1, 64, 8, 8, 128, kStride2},   {9, 64, 6, 8, 128, kStride2},   {3, 128, 10, 8, 128, kStride2},
    {3, 64, 16, 16, 128, kStride2}, {2, 128, 2, 16, 128, kStride2}, {1, 64, 32, 32, 128, kStride2},
    {2, 64, 20, 32, 256, kStride2}, {1, 192, 2, 32, 128, kStride2},
};

TEST_F(CudaShiftedConv2d, ForwardWithStride2) {
  for (const cpu::ConvShape& s : kStridedShapes) {
    SCOPED_TRACE(fmt::format("[{}, {}, {}, {}]", s.samples, s.channels, s.height, s.width));
    const Tensor x = whole_numbers({s.samples, s.channels, s.height, s.width}, "x");
    const Tensor weight = whole_numbers({s.outputs, s.channels, 3, 3}, "weight");
    const Tensor bias = whole_numbers({s.outputs}, "bias");
    Tensor y = Tensor::empty({s.samples, s.outputs, s.rows(), s.columns()}, DType::float32);
    cpu::plain::conv2d(s, x.data<float>(), weight.data<float>(), bias.data<float>(), y.mutable_data<float>());
    Tensor out = Tensor::empty(y.shape(), DType::float32, test::kCuda);
    cuda::strided_conv2d(x.to(test::kCuda), weight.to(test::kCuda), bias.to(test::kCuda), out);
    EXPECT_TRUE(test::same_bytes(out.to(Device{}), y));
  }
}

TEST_F(CudaShiftedConv2d, GradientOfTheInputWithStride2) {
  for (cpu::ConvShape s : kStridedShapes) {
    for (const Window& window : {kStride2, Window{1, 2, 0}}) {
      s.window = window;
      SCOPED_TRACE(fmt::format("[{}, {}, {}, {}], {} taps", s.samples, s.channels, s.height, s.width, window.kernel));
      const Tensor grad_y = whole_numbers({s.samples, s.outputs, s.rows(), s.columns()}, "grad");
      const Tensor weight = whole_numbers({s.outputs, s.channels, window.kernel, window.kernel}, "weight");
      Tensor grad_x = Tensor::empty({s.samples, s.channels, s.height, s.width}, DType::float32);
      cpu::plain::conv2d_grad_input(s, grad_y.data<float>(), weight.data<float>(), grad_x.mutable_data<float>());
      Tensor out = Tensor::empty(grad_x.shape(), DType::float32, test::kCuda);
      cuda::strided_conv2d_grad_input(grad_y.to(test::kCuda), weight.to(test::kCuda), window, out);
      EXPECT_TRUE(test::same_bytes(out.to(Device{}), grad_x));
    }
  }
}

TEST(CudaShiftedWeightGradient, EveryWidth) {
  if (!test::has_cuda() || !cuda::has_warpgroups(test::kCuda)) {
    GTEST_SKIP() << "no GPU that multiplies by warpgroups";
  }
  for (const cpu::ConvShape& s : std::vector<cpu::ConvShape>{{1, 64, 1, 4, 64, kWindow},
                                                             {18, 64, 4, 4, 64, kWindow},
                                                             {33, 64, 2, 8, 64, kWindow},
                                                             {2, 64, 5, 8, 128, kWindow},
                                                             {9, 128, 3, 16, 64, kWindow},
                                                             {5, 64, 4, 32, 64, kWindow},
                                                             {9, 64, 5, 8, 64, kStride2},
                                                             {3, 64, 2, 16, 128, kStride2},
                                                             {5, 128, 6, 32, 64, kStride2}}) {
    SCOPED_TRACE(fmt::format("[{}, {}, {}, {}]", s.samples, s.channels, s.height, s.width));
    const Tensor x = whole_numbers({s.samples, s.channels, s.height, s.width}, "x");
    const Tensor grad_y = whole_numbers({s.samples, s.outputs, s.rows(), s.columns()}, "grad");
    Tensor grad_weight = Tensor::empty({s.outputs, s.channels, 3, 3}, DType::float32);
    cpu::plain::conv2d_grad_weight(s, grad_y.data<float>(), x.data<float>(), grad_weight.mutable_data<float>());
    Tensor out = Tensor::empty(grad_weight.shape(), DType::float32, test::kCuda);
    cuda::shifted_conv2d_grad_weight(grad_y.to(test::kCuda), x.to(test::kCuda), s.window, out);
    EXPECT_TRUE(test::same_bytes(out.to(Device{}), grad_weight));
  }
}

}  // namespace
}  // namespace stagecoach
