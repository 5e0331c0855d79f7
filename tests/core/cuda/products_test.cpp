// The matrix products of the CUDA backend, kernel by kernel, against the plain loops of the CPU.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

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

/// Calls function(stream, plan, out, partial) on GPU memory and brings `out` home.
template <class T, class Function>
Tensor on_gpu(const Shape& shape, const cuda::ProductPlan& plan, const cuda::ProductExtents& e,
              const Function& function) {
  Tensor partial = Tensor::empty({std::max<std::int64_t>(plan.partial_elements(e), 1)}, dtype_of<T>, kGpu);
  Tensor out = Tensor::empty(shape, dtype_of<T>, kGpu);
  function(cuda::compute_stream(kGpu), plan, out.mutable_data<T>(), partial.mutable_data<T>());
  return out.to(Device{});
}
template <class T, class Function>
Tensor on_gpu(const Shape& shape, ProductKernel kernel, const cuda::ProductExtents& e, const Function& function) {
  return on_gpu<T>(shape, plan_product(kernel, e), e, function);
}

/// Sums of `terms` products of standard normal numbers.
::testing::AssertionResult near(const Tensor& a, const Tensor& b, int terms) {
  const double roundings = std::sqrt(static_cast<double>(std::max(terms, 1)));
  return a.dtype() == DType::float32 ? close(a, b, 1e-5 * roundings, 1e-4 * roundings)
                                     : close(a, b, 1e-13 * roundings, 1e-12 * roundings);
}

bool has_tensor_cores() {
  cuda::allow_tf32(true);
  const bool has = cuda::uses_tf32(kGpu);
  cuda::allow_tf32(false);
  return has;
}

class CudaProducts : public ::testing::TestWithParam<ProductKernel> {
 protected:
  void SetUp() override {
    if (!test::has_cuda()) {
      GTEST_SKIP() << test::why_no_cuda();
    }
    if (GetParam() == ProductKernel::tensor_cores && !has_tensor_cores()) {
      GTEST_SKIP() << "this GPU has no tensor cores for TF32";
    }
  }
  Tensor operand(const Shape& shape, const char* name, DType dtype) const;
  template <class T>
  void check_linear(int samples, int inputs, int outputs);
  template <class T>
  void check_conv(const cuda::ConvExtents& e);
};

constexpr const char* kKernelNames[] = {"plain", "tiled", "registers", "tensor_cores"};

std::string name_of_kernel(const ::testing::TestParamInfo<ProductKernel>& info) {
  return kKernelNames[static_cast<std::size_t>(info.param)];
}
INSTANTIATE_TEST_SUITE_P(Kernels, CudaProducts,
                         ::testing::Values(ProductKernel::plain, ProductKernel::tiled, ProductKernel::registers,
                                           ProductKernel::tensor_cores),
                         name_of_kernel);

/// Random numbers that the kernel takes as they are: for tensor cores with 10 bits of fraction.
Tensor CudaProducts::operand(const Shape& shape, const char* name, DType dtype) const {
  Tensor values = random_tensor(shape, name, dtype);
  if (GetParam() == ProductKernel::tensor_cores && dtype == DType::float32) {
    for (float* value = values.mutable_data<float>(); value != values.data<float>() + values.numel(); ++value) {
      // Bit by bit, as a compiler may round a sum of products later than it is written.
      *value = std::bit_cast<float>((std::bit_cast<std::uint32_t>(*value) + 0x1000U) & ~0x1fffU);
    }
  }
  return values;
}

template <class T>
void CudaProducts::check_linear(int samples, int inputs, int outputs) {
  SCOPED_TRACE(fmt::format("{} samples, {} inputs, {} outputs, {}", samples, inputs, outputs, name_of(dtype_of<T>)));
  const cuda::LinearExtents e{samples, inputs, outputs};
  const cpu::LinearShape shape{samples, inputs, outputs};
  const Tensor x = operand({samples, inputs}, "x", dtype_of<T>);
  const Tensor weight = operand({outputs, inputs}, "weight", dtype_of<T>);
  const Tensor bias = operand({outputs}, "bias", dtype_of<T>);
  const Tensor grad = operand({samples, outputs}, "grad", dtype_of<T>);
  const Tensor there_x = x.to(kGpu), there_weight = weight.to(kGpu), there_bias = bias.to(kGpu);
  const Tensor there_grad = grad.to(kGpu);

  Tensor y = Tensor::empty({samples, outputs}, dtype_of<T>);
  cpu::plain::linear(shape, x.data<T>(), weight.data<T>(), bias.data<T>(), y.mutable_data<T>());
  EXPECT_TRUE(near(on_gpu<T>(y.shape(), GetParam(), e.forward(),
                             [&](cudaStream_t stream, const cuda::ProductPlan& plan, T* out, T* partial) {
                               cuda::linear(stream, plan, e, there_x.data<T>(), there_weight.data<T>(),
                                            there_bias.data<T>(), out, partial);
                             }),
                   y, inputs));

  Tensor grad_x = Tensor::empty({samples, inputs}, dtype_of<T>);
  cpu::plain::linear_grad_input(shape, grad.data<T>(), weight.data<T>(), grad_x.mutable_data<T>());
  EXPECT_TRUE(near(on_gpu<T>(grad_x.shape(), GetParam(), e.grad_input(),
                             [&](cudaStream_t stream, const cuda::ProductPlan& plan, T* out, T* partial) {
                               cuda::linear_grad_input(stream, plan, e, there_grad.data<T>(), there_weight.data<T>(),
                                                       out, partial);
                             }),
                   grad_x, outputs));

  Tensor grad_weight = Tensor::empty({outputs, inputs}, dtype_of<T>);
  cpu::plain::linear_grad_weight(shape, grad.data<T>(), x.data<T>(), grad_weight.mutable_data<T>());
  EXPECT_TRUE(near(on_gpu<T>(grad_weight.shape(), GetParam(), e.grad_weight(false),
                             [&](cudaStream_t stream, const cuda::ProductPlan& plan, T* out, T* partial) {
                               cuda::linear_grad_weight(stream, plan, e, false, there_grad.data<T>(), there_x.data<T>(),
                                                        out, static_cast<T*>(nullptr), partial);
                             }),
                   grad_weight, samples));
}

template <class T>
void CudaProducts::check_conv(const cuda::ConvExtents& e) {
  SCOPED_TRACE(fmt::format("[{}, {}, {}, {}] to {} channels, kernel {}, stride {}, padding {}, {}", e.samples,
                           e.channels, e.height, e.width, e.outputs, e.kernel, e.stride, e.padding,
                           name_of(dtype_of<T>)));
  const cpu::ConvShape shape{e.samples, e.channels, e.height, e.width, e.outputs, {e.kernel, e.stride, e.padding}};
  const Tensor x = operand({e.samples, e.channels, e.height, e.width}, "x", dtype_of<T>);
  const Tensor weight = operand({e.outputs, e.channels, e.kernel, e.kernel}, "weight", dtype_of<T>);
  const Tensor bias = operand({e.outputs}, "bias", dtype_of<T>);
  const Tensor grad = operand({e.samples, e.outputs, e.rows, e.columns}, "grad", dtype_of<T>);
  const Tensor there_x = x.to(kGpu), there_weight = weight.to(kGpu), there_bias = bias.to(kGpu);
  const Tensor there_grad = grad.to(kGpu);

  Tensor y = Tensor::empty(grad.shape(), dtype_of<T>);
  cpu::plain::conv2d(shape, x.data<T>(), weight.data<T>(), bias.data<T>(), y.mutable_data<T>());
  EXPECT_TRUE(near(on_gpu<T>(y.shape(), GetParam(), e.forward(),
                             [&](cudaStream_t stream, const cuda::ProductPlan& plan, T* out, T* partial) {
                               cuda::conv2d(stream, plan, e, there_x.data<T>(), there_weight.data<T>(),
                                            there_bias.data<T>(), out, partial);
                             }),
                   y, e.forward().depth));

  Tensor grad_x = Tensor::empty(x.shape(), dtype_of<T>);
  cpu::plain::conv2d_grad_input(shape, grad.data<T>(), weight.data<T>(), grad_x.mutable_data<T>());
  EXPECT_TRUE(near(on_gpu<T>(x.shape(), GetParam(), e.grad_input(),
                             [&](cudaStream_t stream, const cuda::ProductPlan& plan, T* out, T* partial) {
                               cuda::conv2d_grad_input(stream, plan, e, there_grad.data<T>(), there_weight.data<T>(),
                                                       out, partial);
                             }),
                   grad_x, e.grad_input().depth));

  Tensor grad_weight = Tensor::empty(weight.shape(), dtype_of<T>);
  cpu::plain::conv2d_grad_weight(shape, grad.data<T>(), x.data<T>(), grad_weight.mutable_data<T>());
  EXPECT_TRUE(near(on_gpu<T>(weight.shape(), GetParam(), e.grad_weight(false),
                             [&](cudaStream_t stream, const cuda::ProductPlan& plan, T* out, T* partial) {
                               cuda::conv2d_grad_weight(stream, plan, e, false, there_grad.data<T>(), there_x.data<T>(),
                                                        out, static_cast<T*>(nullptr), partial);
                             }),
                   grad_weight, e.grad_weight(false).depth));
}

TEST_P(CudaProducts, Linear) {
  for (const auto& [samples, inputs, outputs] :
       {std::array{1, 1, 1}, {3, 5, 2}, {8, 70, 129}, {17, 33, 16}, {33, 131, 10}, {65, 9, 67}}) {
    check_linear<float>(samples, inputs, outputs);
    check_linear<double>(samples, inputs, outputs);
  }
}

// Few results of many terms: the depth is cut into slices.
TEST_P(CudaProducts, LinearThatIsDeep) {
  check_linear<float>(2, 700, 3);
  check_linear<float>(300, 2, 5);
}

TEST_P(CudaProducts, EmptyBatch) { check_linear<float>(0, 3, 2); }

cuda::ConvExtents conv(int samples, int channels, int height, int width, int outputs, int kernel, int stride,
                       int padding) {
  return {samples,
          channels,
          height,
          width,
          outputs,
          kernel,
          stride,
          padding,
          (height + 2 * padding - kernel) / stride + 1,
          (width + 2 * padding - kernel) / stride + 1};
}

// From 16 x 16 on the rows and columns of a window need more bits.
TEST_P(CudaProducts, Conv2dOfWideWindows) {
  for (const auto& e :
       {conv(1, 2, 14, 15, 3, 15, 1, 1), conv(1, 1, 15, 17, 3, 16, 1, 1), conv(1, 1, 18, 20, 2, 20, 3, 2)}) {
    check_conv<float>(e);
    check_conv<double>(e);
  }
}

TEST_P(CudaProducts, Conv2d) {
  for (const auto& e : {conv(1, 1, 1, 1, 1, 1, 1, 0), conv(2, 3, 6, 5, 4, 3, 1, 1), conv(1, 6, 14, 14, 16, 5, 1, 0),
                        conv(2, 2, 7, 9, 3, 3, 2, 1), conv(1, 4, 5, 8, 17, 1, 2, 0), conv(2, 1, 8, 7, 5, 2, 3, 2),
                        conv(2, 2, 40, 3, 2, 1, 37, 0), conv(1, 1, 3, 2, 2, 4, 1, 6)}) {
    check_conv<float>(e);
    check_conv<double>(e);
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

/// Whole numbers from -8 to 8: TF32 holds them exactly, and float32 their sums.
Tensor whole_numbers(const Shape& shape, const char* name) {
  const Philox random(7, name);
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(random.below(i, 17)) - 8;
  }
  return Tensor::from(values, shape);
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
  void SetUp() override {
    if (!test::has_cuda()) {
      GTEST_SKIP() << test::why_no_cuda();
    }
    if (GetParam().first == ProductKernel::tensor_cores && !has_tensor_cores()) {
      GTEST_SKIP() << "this GPU has no tensor cores for TF32";
    }
  }
  template <class Function>
  static Tensor product(const Shape& shape, const cuda::ProductExtents& e, const Function& function) {
    return on_gpu<float>(shape, plan_product(GetParam().first, GetParam().second, e), e, function);
  }
  static void check_linear(int samples, int inputs, int outputs);
  static void check_conv(const cuda::ConvExtents& e);
};
INSTANTIATE_TEST_SUITE_P(Kernels, CudaTiles, ::testing::ValuesIn(kAllTiles), name_of_tile);

/// Two results in one array, as the gradients of weight and bias are: the bias behind the weight.
Tensor behind_each_other(const Tensor& a, const Tensor& b) {
  Tensor both = Tensor::empty({a.numel() + b.numel()});
  std::copy_n(a.data<float>(), a.numel(), both.mutable_data<float>());
  std::copy_n(b.data<float>(), b.numel(), both.mutable_data<float>() + a.numel());
  return both;
}

void CudaTiles::check_linear(int samples, int inputs, int outputs) {
  SCOPED_TRACE(fmt::format("{} samples, {} inputs, {} outputs", samples, inputs, outputs));
  const cuda::LinearExtents e{samples, inputs, outputs};
  const cpu::LinearShape shape{samples, inputs, outputs};
  const Tensor x = whole_numbers({samples, inputs}, "x"), there_x = x.to(kGpu);
  const Tensor weight = whole_numbers({outputs, inputs}, "weight"), there_weight = weight.to(kGpu);
  const Tensor bias = whole_numbers({outputs}, "bias"), there_bias = bias.to(kGpu);
  const Tensor grad = whole_numbers({samples, outputs}, "grad"), there_grad = grad.to(kGpu);

  Tensor y = Tensor::empty(grad.shape());
  cpu::plain::linear(shape, x.data<float>(), weight.data<float>(), bias.data<float>(), y.mutable_data<float>());
  EXPECT_TRUE(test::same_bytes(product(y.shape(), e.forward(),
                                       [&](cudaStream_t stream, const auto& plan, float* out, float* partial) {
                                         cuda::linear(stream, plan, e, there_x.data<float>(),
                                                      there_weight.data<float>(), there_bias.data<float>(), out,
                                                      partial);
                                       }),
                               y));
  Tensor grad_x = Tensor::empty(x.shape());
  cpu::plain::linear_grad_input(shape, grad.data<float>(), weight.data<float>(), grad_x.mutable_data<float>());
  EXPECT_TRUE(test::same_bytes(product(x.shape(), e.grad_input(),
                                       [&](cudaStream_t stream, const auto& plan, float* out, float* partial) {
                                         cuda::linear_grad_input(stream, plan, e, there_grad.data<float>(),
                                                                 there_weight.data<float>(), out, partial);
                                       }),
                               grad_x));
  Tensor grad_weight = Tensor::empty(weight.shape()), grad_bias = Tensor::zeros(bias.shape());
  cpu::plain::linear_grad_weight(shape, grad.data<float>(), x.data<float>(), grad_weight.mutable_data<float>());
  for (std::int64_t i = 0; i < grad.numel(); ++i) {
    grad_bias.mutable_data<float>()[i % outputs] += grad.data<float>()[i];
  }
  EXPECT_TRUE(test::same_bytes(product({weight.numel() + bias.numel()}, e.grad_weight(true),
                                       [&](cudaStream_t stream, const auto& plan, float* out, float* partial) {
                                         cuda::linear_grad_weight(stream, plan, e, true, there_grad.data<float>(),
                                                                  there_x.data<float>(), out, out + weight.numel(),
                                                                  partial);
                                       }),
                               behind_each_other(grad_weight, grad_bias)));
}

void CudaTiles::check_conv(const cuda::ConvExtents& e) {
  SCOPED_TRACE(fmt::format("[{}, {}, {}, {}] to {} channels, kernel {}, stride {}, padding {}", e.samples, e.channels,
                           e.height, e.width, e.outputs, e.kernel, e.stride, e.padding));
  const cpu::ConvShape shape{e.samples, e.channels, e.height, e.width, e.outputs, {e.kernel, e.stride, e.padding}};
  const Tensor x = whole_numbers({e.samples, e.channels, e.height, e.width}, "x"), there_x = x.to(kGpu);
  const Tensor weight = whole_numbers({e.outputs, e.channels, e.kernel, e.kernel}, "weight");
  const Tensor there_weight = weight.to(kGpu);
  const Tensor bias = whole_numbers({e.outputs}, "bias"), there_bias = bias.to(kGpu);
  const Tensor grad = whole_numbers({e.samples, e.outputs, e.rows, e.columns}, "grad"), there_grad = grad.to(kGpu);

  Tensor y = Tensor::empty(grad.shape());
  cpu::plain::conv2d(shape, x.data<float>(), weight.data<float>(), bias.data<float>(), y.mutable_data<float>());
  EXPECT_TRUE(test::same_bytes(product(y.shape(), e.forward(),
                                       [&](cudaStream_t stream, const auto& plan, float* out, float* partial) {
                                         cuda::conv2d(stream, plan, e, there_x.data<float>(),
                                                      there_weight.data<float>(), there_bias.data<float>(), out,
                                                      partial);
                                       }),
                               y));
  Tensor grad_x = Tensor::empty(x.shape());
  cpu::plain::conv2d_grad_input(shape, grad.data<float>(), weight.data<float>(), grad_x.mutable_data<float>());
  EXPECT_TRUE(test::same_bytes(product(x.shape(), e.grad_input(),
                                       [&](cudaStream_t stream, const auto& plan, float* out, float* partial) {
                                         cuda::conv2d_grad_input(stream, plan, e, there_grad.data<float>(),
                                                                 there_weight.data<float>(), out, partial);
                                       }),
                               grad_x));
  Tensor grad_weight = Tensor::empty(weight.shape()), grad_bias = Tensor::zeros(bias.shape());
  cpu::plain::conv2d_grad_weight(shape, grad.data<float>(), x.data<float>(), grad_weight.mutable_data<float>());
  for (std::int64_t i = 0; i < grad.numel(); ++i) {
    grad_bias.mutable_data<float>()[i / e.positions() % e.outputs] += grad.data<float>()[i];
  }
  EXPECT_TRUE(test::same_bytes(product({weight.numel() + bias.numel()}, e.grad_weight(true),
                                       [&](cudaStream_t stream, const auto& plan, float* out, float* partial) {
                                         cuda::conv2d_grad_weight(stream, plan, e, true, there_grad.data<float>(),
                                                                  there_x.data<float>(), out, out + weight.numel(),
                                                                  partial);
                                       }),
                               behind_each_other(grad_weight, grad_bias)));
}

TEST_P(CudaTiles, Linear) {
  for (const auto& [samples, inputs, outputs] :
       {std::array{1, 1, 1}, {17, 16, 9}, {64, 32, 128}, {65, 33, 129}, {130, 47, 260}, {40, 1500, 30}}) {
    check_linear(samples, inputs, outputs);
  }
}

TEST_P(CudaTiles, Conv2d) {
  for (const auto& e : {conv(1, 1, 1, 1, 1, 1, 1, 0), conv(2, 3, 9, 7, 70, 3, 1, 1), conv(3, 18, 7, 9, 130, 3, 2, 1),
                        conv(2, 130, 6, 5, 9, 2, 1, 0), conv(1, 5, 33, 12, 6, 5, 1, 2)}) {
    check_conv(e);
  }
  if (GetParam().first == ProductKernel::tiled) {  // which stands for the faster ones where windows are wide
    for (const auto& e : {conv(1, 2, 15, 17, 3, 16, 1, 1), conv(1, 1, 3, 2, 2, 63, 1, 31)}) {
      check_conv(e);
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
