// The matrix products of the CUDA backend, kernel by kernel, against the plain loops of the CPU.

#include "core/kernels/cuda/products.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/cuda_backend.h"
#include "core/kernels/cpu/conv2d.h"
#include "core/kernels/cpu/linear.h"
#include "core/ops.h"
#include "tests/support/devices.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using cuda::ProductKernel;
using test::close;
using test::random_tensor;

const Device kGpu = test::kCuda;

/// How a product is run, on which numbers, and what counts as equal.
struct Trial {
  cuda::Planner planner;
  std::function<Tensor(const Shape&, const char* name)> operand;
  std::function<::testing::AssertionResult(const Tensor& got, const Tensor& expected, std::int64_t terms)> same;

  void expect(const Tensor& got, const Tensor& expected, std::int64_t terms) const {
    EXPECT_TRUE(same(got.to(Device{}), expected, terms));
  }
};

/// A tensor in both memories.
struct Operand {
  Tensor here, there;
  Operand(const Trial& trial, const Shape& shape, const char* name)
      : here(trial.operand(shape, name)), there(here.to(kGpu)) {}
};

Tensor result_like(const Tensor& tensor) { return Tensor::empty(tensor.shape(), tensor.dtype(), kGpu); }

/// The gradient of the bias, for `grad` [N, outputs, …].
template <class T>
Tensor bias_gradient(const Tensor& grad) {
  Tensor sums = Tensor::zeros({grad.size(1)}, dtype_of<T>);
  const std::int64_t outputs = grad.size(1);
  const std::int64_t positions = grad.numel() == 0 ? 1 : grad.numel() / grad.size(0) / outputs;
  T* to = sums.mutable_data<T>();
  for (std::int64_t i = 0; i < grad.numel(); ++i) {
    to[i / positions % outputs] += grad.data<T>()[i];
  }
  return sums;
}

template <class T>
void check_linear(const Trial& trial, std::int64_t samples, std::int64_t inputs, std::int64_t outputs) {
  SCOPED_TRACE(fmt::format("{} samples, {} inputs, {} outputs, {}", samples, inputs, outputs, name_of(dtype_of<T>)));
  const cpu::LinearShape shape{samples, inputs, outputs};
  const Operand x(trial, {samples, inputs}, "x"), weight(trial, {outputs, inputs}, "weight");
  const Operand bias(trial, {outputs}, "bias"), grad(trial, {samples, outputs}, "grad");

  Tensor y = Tensor::empty(grad.here.shape(), dtype_of<T>);
  cpu::plain::linear(shape, x.here.data<T>(), weight.here.data<T>(), bias.here.data<T>(), y.mutable_data<T>());
  Tensor out = result_like(y);
  cuda::linear(x.there, weight.there, bias.there, out, trial.planner);
  trial.expect(out, y, inputs);

  Tensor grad_x = Tensor::empty(x.here.shape(), dtype_of<T>);
  cpu::plain::linear_grad_input(shape, grad.here.data<T>(), weight.here.data<T>(), grad_x.mutable_data<T>());
  out = result_like(grad_x);
  cuda::linear_grad_input(grad.there, weight.there, out, trial.planner);
  trial.expect(out, grad_x, outputs);

  Tensor grad_weight = Tensor::empty(weight.here.shape(), dtype_of<T>);
  cpu::plain::linear_grad_weight(shape, grad.here.data<T>(), x.here.data<T>(), grad_weight.mutable_data<T>());
  out = result_like(grad_weight);
  Tensor none, out_bias = result_like(bias.here);
  cuda::linear_grad_weight(grad.there, x.there, out, none, trial.planner);
  trial.expect(out, grad_weight, samples);
  Tensor both = result_like(grad_weight);
  cuda::linear_grad_weight(grad.there, x.there, both, out_bias, trial.planner);
  EXPECT_TRUE(test::same_bytes(both, out)) << "with the gradient of the bias";
  trial.expect(out_bias, bias_gradient<T>(grad.here), samples);
}

template <class T>
void check_conv(const Trial& trial, const cpu::ConvShape& s) {
  SCOPED_TRACE(fmt::format("[{}, {}, {}, {}] to {} channels, kernel {}, stride {}, padding {}, {}", s.samples,
                           s.channels, s.height, s.width, s.outputs, s.window.kernel, s.window.stride, s.window.padding,
                           name_of(dtype_of<T>)));
  const std::int64_t taps = s.window.kernel * s.window.kernel;
  const Operand x(trial, {s.samples, s.channels, s.height, s.width}, "x");
  const Operand weight(trial, {s.outputs, s.channels, s.window.kernel, s.window.kernel}, "weight");
  const Operand bias(trial, {s.outputs}, "bias"), grad(trial, {s.samples, s.outputs, s.rows(), s.columns()}, "grad");

  Tensor y = Tensor::empty(grad.here.shape(), dtype_of<T>);
  cpu::plain::conv2d(s, x.here.data<T>(), weight.here.data<T>(), bias.here.data<T>(), y.mutable_data<T>());
  Tensor out = result_like(y);
  cuda::conv2d(x.there, weight.there, bias.there, s.window, out, trial.planner);
  trial.expect(out, y, s.channels * taps);

  Tensor grad_x = Tensor::empty(x.here.shape(), dtype_of<T>);
  cpu::plain::conv2d_grad_input(s, grad.here.data<T>(), weight.here.data<T>(), grad_x.mutable_data<T>());
  out = result_like(grad_x);
  cuda::conv2d_grad_input(grad.there, weight.there, s.window, out, trial.planner);
  trial.expect(out, grad_x, s.outputs * taps);

  Tensor grad_weight = Tensor::empty(weight.here.shape(), dtype_of<T>);
  cpu::plain::conv2d_grad_weight(s, grad.here.data<T>(), x.here.data<T>(), grad_weight.mutable_data<T>());
  const std::int64_t terms = s.samples * s.rows() * s.columns();
  out = result_like(grad_weight);
  Tensor none, out_bias = result_like(bias.here);
  cuda::conv2d_grad_weight(grad.there, x.there, s.window, out, none, trial.planner);
  trial.expect(out, grad_weight, terms);
  Tensor both = result_like(grad_weight);
  cuda::conv2d_grad_weight(grad.there, x.there, s.window, both, out_bias, trial.planner);
  EXPECT_TRUE(test::same_bytes(both, out)) << "with the gradient of the bias";
  trial.expect(out_bias, bias_gradient<T>(grad.here), terms);
}

cpu::ConvShape conv(int samples, int channels, int height, int width, int outputs, int kernel, int stride,
                    int padding) {
  return {samples, channels, height, width, outputs, {kernel, stride, padding}};
}

/// Skips a test that this machine cannot run.
void need(ProductKernel kernel) {
  if (!test::has_cuda()) {
    GTEST_SKIP() << test::why_no_cuda();
  }
  cuda::allow_tf32(true);
  const bool has_tensor_cores = cuda::uses_tf32(kGpu);
  cuda::allow_tf32(false);
  if (on_tensor_cores(kernel) && !has_tensor_cores) {
    GTEST_SKIP() << "this GPU has no tensor cores for TF32";
  }
  if (kernel == ProductKernel::warpgroups && !cuda::has_warpgroups(kGpu)) {
    GTEST_SKIP() << "this GPU multiplies by warps, not by warpgroups, or the program was not compiled for it";
  }
}

constexpr const char* kKernelNames[] = {"plain", "tiled", "registers", "tensor_cores", "warpgroups"};

std::string name_of_kernel(const ::testing::TestParamInfo<ProductKernel>& info) {
  return kKernelNames[static_cast<std::size_t>(info.param)];
}

/// Every kernel on real numbers, which are rounded.
class CudaProducts : public ::testing::TestWithParam<ProductKernel> {
 protected:
  void SetUp() override { need(GetParam()); }

  template <class T>
  static Trial trial() {
    return {[](const cuda::ProductExtents& e, DType, Device) { return plan_product(GetParam(), e); },
            [](const Shape& shape, const char* name) { return operand(shape, name, dtype_of<T>); }, near};
  }

 private:
  /// Random numbers that the kernel takes as they are: for tensor cores with 10 bits of fraction.
  static Tensor operand(const Shape& shape, const char* name, DType dtype) {
    Tensor values = random_tensor(shape, name, dtype);
    if (on_tensor_cores(GetParam()) && dtype == DType::float32) {
      for (float* value = values.mutable_data<float>(); value != values.data<float>() + values.numel(); ++value) {
        // Bit by bit, as a compiler may round a sum of products later than it is written.
        *value = std::bit_cast<float>((std::bit_cast<std::uint32_t>(*value) + 0x1000U) & ~0x1fffU);
      }
    }
    return values;
  }
  /// Sums of `terms` products of standard normal numbers.
  static ::testing::AssertionResult near(const Tensor& a, const Tensor& b, std::int64_t terms) {
    const double roundings = std::sqrt(static_cast<double>(std::max<std::int64_t>(terms, 1)));
    return a.dtype() == DType::float32 ? close(a, b, 1e-5 * roundings, 1e-4 * roundings)
                                       : close(a, b, 1e-13 * roundings, 1e-12 * roundings);
  }
};
INSTANTIATE_TEST_SUITE_P(Kernels, CudaProducts,
                         ::testing::Values(ProductKernel::plain, ProductKernel::tiled, ProductKernel::registers,
                                           ProductKernel::tensor_cores, ProductKernel::warpgroups),
                         name_of_kernel);

TEST_P(CudaProducts, Linear) {
  for (const auto& [samples, inputs, outputs] :
       {std::array{1, 1, 1}, {3, 5, 2}, {8, 70, 129}, {17, 33, 16}, {33, 131, 10}, {65, 9, 67}}) {
    check_linear<float>(trial<float>(), samples, inputs, outputs);
    check_linear<double>(trial<double>(), samples, inputs, outputs);
  }
}

// Few results of many terms: K is split.
TEST_P(CudaProducts, LinearOfManyTerms) {
  check_linear<float>(trial<float>(), 2, 700, 3);
  check_linear<float>(trial<float>(), 300, 2, 5);
}

TEST_P(CudaProducts, EmptyBatch) { check_linear<float>(trial<float>(), 0, 3, 2); }

TEST_P(CudaProducts, Conv2d) {
  for (const auto& e :
       {conv(1, 1, 1, 1, 1, 1, 1, 0), conv(2, 3, 6, 5, 4, 3, 1, 1), conv(1, 6, 14, 14, 16, 5, 1, 0),
        conv(2, 2, 7, 9, 3, 3, 2, 1), conv(1, 4, 5, 8, 17, 1, 2, 0), conv(2, 1, 8, 7, 5, 2, 3, 2),
        conv(2, 2, 40, 3, 2, 1, 37, 0), conv(1, 1, 3, 2, 2, 4, 1, 6), conv(1, 2, 14, 15, 3, 15, 1, 1)}) {
    check_conv<float>(trial<float>(), e);
    check_conv<double>(trial<double>(), e);
  }
}

TEST(CudaProducts, RefuseWindowsBeyond15) {
  if (!test::has_cuda()) {
    GTEST_SKIP() << test::why_no_cuda();
  }
  const Tensor x = Tensor::zeros({1, 1, 16, 16}, DType::float32, kGpu);
  EXPECT_TRUE(test::fails_with({"conv2d on cuda", "at most 15 x 15", "got 16 x 16"}, [&] { conv2d(x, x, {}, {}); }));
}

/// A kernel in one of its tiles.
using KernelAndTile = std::pair<ProductKernel, cuda::BlockTile>;

const KernelAndTile kAllTiles[] = {
    {ProductKernel::tiled, {16, 16}},          {ProductKernel::registers, {16, 128}},
    {ProductKernel::registers, {64, 64}},      {ProductKernel::tensor_cores, {64, 256}},
    {ProductKernel::tensor_cores, {128, 128}}, {ProductKernel::warpgroups, {64, 256}},
    {ProductKernel::warpgroups, {128, 128}},   {ProductKernel::warpgroups, {64, 64}},
    {ProductKernel::warpgroups, {128, 64}},    {ProductKernel::warpgroups, {64, 128}},
};

std::string name_of_tile(const ::testing::TestParamInfo<KernelAndTile>& info) {
  const auto& [kernel, tile] = info.param;
  return fmt::format("{}_{}x{}", kKernelNames[static_cast<std::size_t>(kernel)], tile.m, tile.n);
}

/// Every tile on results that do not fill it, and on results of several. With whole numbers: tensor cores round
/// factors, so real numbers would show little, but whole ones must come out exactly, in any order of the sums.
class CudaTiles : public ::testing::TestWithParam<KernelAndTile> {
 protected:
  void SetUp() override { need(GetParam().first); }

  /// Whole numbers from -8 to 8: TF32 holds them exactly, and float32 their sums.
  static Tensor whole_numbers(const Shape& shape, const char* name) {
    const Philox random(7, name);
    std::vector<float> values(static_cast<std::size_t>(shape.numel()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(random.below(i, 17)) - 8;
    }
    return Tensor::from(values, shape);
  }
  static ::testing::AssertionResult same(const Tensor& a, const Tensor& b, std::int64_t /*terms*/) {
    return test::same_bytes(a, b);
  }
  const Trial trial_{
      [](const cuda::ProductExtents& e, DType, Device) { return plan_product(GetParam().first, GetParam().second, e); },
      whole_numbers, same};
};
INSTANTIATE_TEST_SUITE_P(Kernels, CudaTiles, ::testing::ValuesIn(kAllTiles), name_of_tile);

TEST_P(CudaTiles, Linear) {
  for (const auto& [samples, inputs, outputs] : {std::array{1, 1, 1},
                                                 {17, 16, 9},
                                                 {64, 32, 128},
                                                 {65, 33, 129},
                                                 {130, 47, 260},
                                                 {40, 1500, 30},
                                                 {129, 36, 260},
                                                 {700, 68, 132}}) {
    check_linear<float>(trial_, samples, inputs, outputs);
  }
}

TEST_P(CudaTiles, Conv2d) {
  for (const auto& e : {conv(1, 1, 1, 1, 1, 1, 1, 0), conv(2, 3, 9, 7, 70, 3, 1, 1), conv(3, 18, 7, 9, 130, 3, 2, 1),
                        conv(2, 130, 6, 5, 9, 2, 1, 0), conv(1, 5, 33, 12, 6, 5, 1, 2)}) {
    check_conv<float>(trial_, e);
  }
}

TEST(ProductPlan, TakesTheLowTileForFewRows) {
  const auto rows_of = [](int rows) { return cuda::block_tile(ProductKernel::registers, {rows, 100, 10}).m; };
  EXPECT_EQ(rows_of(6), 16);
  EXPECT_EQ(rows_of(16), 16);
  EXPECT_EQ(rows_of(17), 64);
}

TEST(ProductPlan, FillsTheLastWaveOfBlocks) {
  const auto splits_of = [](int m, int n, int k) { return plan_product(ProductKernel::warpgroups, {m, n, k}).splits; };
  EXPECT_EQ(splits_of(512, 4608, 8192), 5) << "144 blocks would leave 112 of 256 slots empty; 720 fill 2.8 waves";
  EXPECT_EQ(splits_of(512, 8192, 4608), 1) << "256 blocks fill a wave";
  EXPECT_EQ(splits_of(512, 4608, 64), 1) << "nothing to split";
  EXPECT_EQ(splits_of(128, 33792, 512), 1) << "264 blocks: the passes over so large a result would cost more";
}

TEST(ProductPlan, SplitsOnlySmallResultsOfManyTerms) {
  const cuda::ProductPlan deep = plan_product(ProductKernel::registers, {6, 75, 50176});
  EXPECT_EQ(deep.k_per_split, 128) << "512 splits of 98, rounded up to whole tiles";
  EXPECT_EQ(deep.splits, 392) << "none is empty";
  EXPECT_EQ(plan_product(ProductKernel::registers, {6, 50176, 75}).splits, 1);
  EXPECT_EQ(plan_product(ProductKernel::registers, {6, 12544, 400}).splits, 5) << "low tiles: four times the blocks";
  EXPECT_EQ(plan_product(ProductKernel::registers, {6, 75, 63}).splits, 1);
  EXPECT_EQ(plan_product(ProductKernel::plain, {6, 75, 50176}).splits, 1);
}

}  // namespace
}  // namespace stagecoach
