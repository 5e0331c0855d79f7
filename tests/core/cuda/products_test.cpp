// The matrix products of the CUDA backend, kernel by kernel, against the plain loops of the CPU.

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

#include "core/cuda/queues.h"
#include "core/cuda_backend.h"
#include "core/kernels/cpu/conv2d.h"
#include "core/kernels/cpu/linear.h"
#include "core/kernels/cuda/functions.h"
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
  std::function<cuda::ProductPlan(const cuda::ProductExtents&)> plan;
  std::function<Tensor(const Shape&, const char* name)> operand;
  std::function<::testing::AssertionResult(const Tensor& got, const Tensor& wanted, int terms)> same;
};

/// Calls function(plan, out, partial) on GPU memory and compares `out` with `wanted`.
template <class T, class Function>
void expect_product(const Trial& trial, const cuda::ProductExtents& e, const Tensor& wanted, const Function& function) {
  const cuda::ProductPlan plan = trial.plan(e);
  Tensor partial = Tensor::empty({std::max<std::int64_t>(plan.partial_elements(e), 1)}, dtype_of<T>, kGpu);
  Tensor out = Tensor::empty(wanted.shape(), dtype_of<T>, kGpu);
  function(plan, out.mutable_data<T>(), partial.mutable_data<T>());
  EXPECT_TRUE(trial.same(out.to(Device{}), wanted, e.depth));
}

/// A tensor in both memories.
struct Operand {
  Tensor here, there;
  Operand(const Trial& trial, const Shape& shape, const char* name)
      : here(trial.operand(shape, name)), there(here.to(kGpu)) {}
};

/// The gradients of weight and bias, one behind the other; `grad` is [N, outputs, positions].
template <class T>
Tensor with_bias(const Tensor& grad_weight, const Tensor& grad, int outputs, int positions) {
  Tensor both = Tensor::zeros({grad_weight.numel() + outputs}, dtype_of<T>);
  T* grad_bias = std::copy_n(grad_weight.data<T>(), grad_weight.numel(), both.mutable_data<T>());
  for (std::int64_t i = 0; i < grad.numel(); ++i) {
    grad_bias[i / positions % outputs] += grad.data<T>()[i];
  }
  return both;
}

template <class T>
void check_linear(const Trial& trial, int samples, int inputs, int outputs) {
  SCOPED_TRACE(fmt::format("{} samples, {} inputs, {} outputs, {}", samples, inputs, outputs, name_of(dtype_of<T>)));
  const cuda::LinearExtents e{samples, inputs, outputs};
  const cpu::LinearShape shape{samples, inputs, outputs};
  const cudaStream_t stream = cuda::compute_stream(kGpu);
  const Operand x(trial, {samples, inputs}, "x"), weight(trial, {outputs, inputs}, "weight");
  const Operand bias(trial, {outputs}, "bias"), grad(trial, {samples, outputs}, "grad");

  Tensor y = Tensor::empty(grad.here.shape(), dtype_of<T>);
  cpu::plain::linear(shape, x.here.data<T>(), weight.here.data<T>(), bias.here.data<T>(), y.mutable_data<T>());
  expect_product<T>(trial, e.forward(), y, [&](const auto& plan, T* out, T* partial) {
    cuda::linear(stream, plan, e, x.there.data<T>(), weight.there.data<T>(), bias.there.data<T>(), out, partial);
  });

  Tensor grad_x = Tensor::empty(x.here.shape(), dtype_of<T>);
  cpu::plain::linear_grad_input(shape, grad.here.data<T>(), weight.here.data<T>(), grad_x.mutable_data<T>());
  expect_product<T>(trial, e.grad_input(), grad_x, [&](const auto& plan, T* out, T* partial) {
    cuda::linear_grad_input(stream, plan, e, grad.there.data<T>(), weight.there.data<T>(), out, partial);
  });

  Tensor grad_weight = Tensor::empty(weight.here.shape(), dtype_of<T>);
  cpu::plain::linear_grad_weight(shape, grad.here.data<T>(), x.here.data<T>(), grad_weight.mutable_data<T>());
  expect_product<T>(trial, e.grad_weight(false), grad_weight, [&](const auto& plan, T* out, T* partial) {
    cuda::linear_grad_weight(stream, plan, e, false, grad.there.data<T>(), x.there.data<T>(), out,
                             static_cast<T*>(nullptr), partial);
  });
  const Tensor both = with_bias<T>(grad_weight, grad.here, outputs, 1);
  expect_product<T>(trial, e.grad_weight(true), both, [&](const auto& plan, T* out, T* partial) {
    cuda::linear_grad_weight(stream, plan, e, true, grad.there.data<T>(), x.there.data<T>(), out,
                             out + grad_weight.numel(), partial);
  });
}

template <class T>
void check_conv(const Trial& trial, const cuda::ConvExtents& e) {
  SCOPED_TRACE(fmt::format("[{}, {}, {}, {}] to {} channels, kernel {}, stride {}, padding {}, {}", e.samples,
                           e.channels, e.height, e.width, e.outputs, e.kernel, e.stride, e.padding,
                           name_of(dtype_of<T>)));
  const cpu::ConvShape shape{e.samples, e.channels, e.height, e.width, e.outputs, {e.kernel, e.stride, e.padding}};
  const cudaStream_t stream = cuda::compute_stream(kGpu);
  const Operand x(trial, {e.samples, e.channels, e.height, e.width}, "x");
  const Operand weight(trial, {e.outputs, e.channels, e.kernel, e.kernel}, "weight");
  const Operand bias(trial, {e.outputs}, "bias"), grad(trial, {e.samples, e.outputs, e.rows, e.columns}, "grad");

  Tensor y = Tensor::empty(grad.here.shape(), dtype_of<T>);
  cpu::plain::conv2d(shape, x.here.data<T>(), weight.here.data<T>(), bias.here.data<T>(), y.mutable_data<T>());
  expect_product<T>(trial, e.forward(), y, [&](const auto& plan, T* out, T* partial) {
    cuda::conv2d(stream, plan, e, x.there.data<T>(), weight.there.data<T>(), bias.there.data<T>(), out, partial);
  });

  Tensor grad_x = Tensor::empty(x.here.shape(), dtype_of<T>);
  cpu::plain::conv2d_grad_input(shape, grad.here.data<T>(), weight.here.data<T>(), grad_x.mutable_data<T>());
  expect_product<T>(trial, e.grad_input(), grad_x, [&](const auto& plan, T* out, T* partial) {
    cuda::conv2d_grad_input(stream, plan, e, grad.there.data<T>(), weight.there.data<T>(), out, partial);
  });

  Tensor grad_weight = Tensor::empty(weight.here.shape(), dtype_of<T>);
  cpu::plain::conv2d_grad_weight(shape, grad.here.data<T>(), x.here.data<T>(), grad_weight.mutable_data<T>());
  expect_product<T>(trial, e.grad_weight(false), grad_weight, [&](const auto& plan, T* out, T* partial) {
    cuda::conv2d_grad_weight(stream, plan, e, false, grad.there.data<T>(), x.there.data<T>(), out,
                             static_cast<T*>(nullptr), partial);
  });
  const Tensor both = with_bias<T>(grad_weight, grad.here, e.outputs, e.positions());
  expect_product<T>(trial, e.grad_weight(true), both, [&](const auto& plan, T* out, T* partial) {
    cuda::conv2d_grad_weight(stream, plan, e, true, grad.there.data<T>(), x.there.data<T>(), out,
                             out + grad_weight.numel(), partial);
  });
}

cuda::ConvExtents conv(int samples, int channels, int height, int width, int outputs, int kernel, int stride,
                       int padding) {
  const auto places = [&](int size) { return (size + 2 * padding - kernel) / stride + 1; };
  return {samples, channels, height, width, outputs, kernel, stride, padding, places(height), places(width)};
}

/// Skips a test that this machine cannot run.
void need(ProductKernel kernel) {
  if (!test::has_cuda()) {
    GTEST_SKIP() << test::why_no_cuda();
  }
  cuda::allow_tf32(true);
  const bool has_tensor_cores = cuda::uses_tf32(kGpu);
  cuda::allow_tf32(false);
  if (kernel == ProductKernel::tensor_cores && !has_tensor_cores) {
    GTEST_SKIP() << "this GPU has no tensor cores for TF32";
  }
}

constexpr const char* kKernelNames[] = {"plain", "tiled", "registers", "tensor_cores"};

std::string name_of_kernel(const ::testing::TestParamInfo<ProductKernel>& info) {
  return kKernelNames[static_cast<std::size_t>(info.param)];
}

/// Every kernel on real numbers, which are rounded.
class CudaProducts : public ::testing::TestWithParam<ProductKernel> {
 protected:
  void SetUp() override { need(GetParam()); }

  template <class T>
  static Trial trial() {
    return {[](const cuda::ProductExtents& e) { return plan_product(GetParam(), e); },
            [](const Shape& shape, const char* name) { return operand(shape, name, dtype_of<T>); }, near};
  }

 private:
  /// Random numbers that the kernel takes as they are: for tensor cores with 10 bits of fraction.
  static Tensor operand(const Shape& shape, const char* name, DType dtype) {
    Tensor values = random_tensor(shape, name, dtype);
    if (GetParam() == ProductKernel::tensor_cores && dtype == DType::float32) {
      for (float* value = values.mutable_data<float>(); value != values.data<float>() + values.numel(); ++value) {
        // Bit by bit, as a compiler may round a sum of products later than it is written.
        *value = std::bit_cast<float>((std::bit_cast<std::uint32_t>(*value) + 0x1000U) & ~0x1fffU);
      }
    }
    return values;
  }
  /// Sums of `terms` products of standard normal numbers.
  static ::testing::AssertionResult near(const Tensor& a, const Tensor& b, int terms) {
    const double roundings = std::sqrt(static_cast<double>(std::max(terms, 1)));
    return a.dtype() == DType::float32 ? close(a, b, 1e-5 * roundings, 1e-4 * roundings)
                                       : close(a, b, 1e-13 * roundings, 1e-12 * roundings);
  }
};
INSTANTIATE_TEST_SUITE_P(Kernels, CudaProducts,
                         ::testing::Values(ProductKernel::plain, ProductKernel::tiled, ProductKernel::registers,
                                           ProductKernel::tensor_cores),
                         name_of_kernel);

TEST_P(CudaProducts, Linear) {
  for (const auto& [samples, inputs, outputs] :
       {std::array{1, 1, 1}, {3, 5, 2}, {8, 70, 129}, {17, 33, 16}, {33, 131, 10}, {65, 9, 67}}) {
    check_linear<float>(trial<float>(), samples, inputs, outputs);
    check_linear<double>(trial<double>(), samples, inputs, outputs);
  }
}

// Few results of many terms: the depth is cut into slices.
TEST_P(CudaProducts, LinearThatIsDeep) {
  check_linear<float>(trial<float>(), 2, 700, 3);
  check_linear<float>(trial<float>(), 300, 2, 5);
}

TEST_P(CudaProducts, EmptyBatch) { check_linear<float>(trial<float>(), 0, 3, 2); }

// From 16 x 16 on the rows and columns of a window need more bits.
TEST_P(CudaProducts, Conv2dOfWideWindows) {
  for (const auto& e :
       {conv(1, 2, 14, 15, 3, 15, 1, 1), conv(1, 1, 15, 17, 3, 16, 1, 1), conv(1, 1, 18, 20, 2, 20, 3, 2)}) {
    check_conv<float>(trial<float>(), e);
    check_conv<double>(trial<double>(), e);
  }
}

TEST_P(CudaProducts, Conv2d) {
  for (const auto& e : {conv(1, 1, 1, 1, 1, 1, 1, 0), conv(2, 3, 6, 5, 4, 3, 1, 1), conv(1, 6, 14, 14, 16, 5, 1, 0),
                        conv(2, 2, 7, 9, 3, 3, 2, 1), conv(1, 4, 5, 8, 17, 1, 2, 0), conv(2, 1, 8, 7, 5, 2, 3, 2),
                        conv(2, 2, 40, 3, 2, 1, 37, 0), conv(1, 1, 3, 2, 2, 4, 1, 6)}) {
    check_conv<float>(trial<float>(), e);
    check_conv<double>(trial<double>(), e);
  }
}

TEST(CudaProducts, RefuseWindowsBeyond63) {
  if (!test::has_cuda()) {
    GTEST_SKIP() << test::why_no_cuda();
  }
  const Tensor x = Tensor::zeros({1, 1, 64, 64}, DType::float32, kGpu);
  EXPECT_TRUE(
      test::fails_with({"conv2d on cuda", "a kernel of 64 x 64", "at most 63 x 63"}, [&] { conv2d(x, x, {}, {}); }));
}

/// A kernel in one of its tiles.
using KernelAndTile = std::pair<ProductKernel, cuda::BlockTile>;

const KernelAndTile kAllTiles[] = {
    {ProductKernel::tiled, {16, 16}},         {ProductKernel::registers, {8, 128}},
    {ProductKernel::registers, {16, 128}},    {ProductKernel::registers, {32, 32}},
    {ProductKernel::registers, {64, 64}},     {ProductKernel::registers, {128, 128}},
    {ProductKernel::tensor_cores, {64, 256}}, {ProductKernel::tensor_cores, {128, 128}},
};

std::string name_of_tile(const ::testing::TestParamInfo<KernelAndTile>& info) {
  const auto& [kernel, tile] = info.param;
  return fmt::format("{}_{}x{}", kKernelNames[static_cast<std::size_t>(kernel)], tile.rows, tile.columns);
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
  static ::testing::AssertionResult same(const Tensor& a, const Tensor& b, int /*terms*/) {
    return test::same_bytes(a, b);
  }
  const Trial trial_{[](const cuda::ProductExtents& e) { return plan_product(GetParam().first, GetParam().second, e); },
                     whole_numbers, same};
};
INSTANTIATE_TEST_SUITE_P(Kernels, CudaTiles, ::testing::ValuesIn(kAllTiles), name_of_tile);

TEST_P(CudaTiles, Linear) {
  for (const auto& [samples, inputs, outputs] :
       {std::array{1, 1, 1}, {17, 16, 9}, {64, 32, 128}, {65, 33, 129}, {130, 47, 260}, {40, 1500, 30}}) {
    check_linear<float>(trial_, samples, inputs, outputs);
  }
}

TEST_P(CudaTiles, Conv2d) {
  for (const auto& e : {conv(1, 1, 1, 1, 1, 1, 1, 0), conv(2, 3, 9, 7, 70, 3, 1, 1), conv(3, 18, 7, 9, 130, 3, 2, 1),
                        conv(2, 130, 6, 5, 9, 2, 1, 0), conv(1, 5, 33, 12, 6, 5, 1, 2)}) {
    check_conv<float>(trial_, e);
  }
  if (GetParam().first == ProductKernel::tiled) {  // which stands for the faster ones where windows are wide
    for (const auto& e : {conv(1, 2, 15, 17, 3, 16, 1, 1), conv(1, 1, 3, 2, 2, 63, 1, 31)}) {
      check_conv<float>(trial_, e);
    }
  }
}

// Every tile of the register-tiled kernel: 8, 16, 32, 64 and 128 rows.
TEST(ProductPlan, TakesEachTile) {
  const auto rows_of = [](int rows, int columns) {
    return cuda::block_tile(ProductKernel::registers, {rows, columns, 10}).rows;
  };
  EXPECT_EQ(rows_of(6, 100), 8);
  EXPECT_EQ(rows_of(16, 100), 16);
  EXPECT_EQ(rows_of(17, 100), 32);
  EXPECT_EQ(rows_of(64, 128 * 64), 64);
  EXPECT_EQ(rows_of(128, 128 * 128), 128);
}

TEST(ProductPlan, SlicesOnlyWhatIsDeepAndSmall) {
  const cuda::ProductPlan deep = plan_product(ProductKernel::registers, {6, 75, 50176});
  EXPECT_EQ(deep.depth_of_slice, 128) << "512 slices of 98, rounded up to whole tiles";
  EXPECT_EQ(deep.slices, 392) << "none is empty";
  EXPECT_EQ(plan_product(ProductKernel::registers, {6, 50176, 75}).slices, 1);
  EXPECT_EQ(plan_product(ProductKernel::registers, {6, 12544, 400}).slices, 5) << "low tiles: four times the blocks";
  EXPECT_EQ(plan_product(ProductKernel::registers, {6, 75, 63}).slices, 1);
  EXPECT_EQ(plan_product(ProductKernel::plain, {6, 75, 50176}).slices, 1);
}

}  // namespace
}  // namespace stagecoach
