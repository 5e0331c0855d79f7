// The matrix products of the CUDA backend, kernel by kernel, against the plain loops of the CPU.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>

#include "core/cuda/queues.h"
#include "core/cuda_backend.h"
#include "core/kernels/cpu/conv2d.h"
#include "core/kernels/cpu/linear.h"
#include "core/kernels/cuda/functions.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using cuda::ProductKernel;
using test::close;
using test::random_tensor;

const Device kGpu = test::kCuda;

/// Calls function(stream, plan, partial) on GPU memory and brings its result home.
template <class T, class Function>
Tensor on_gpu(const Shape& shape, ProductKernel kernel, const cuda::ProductExtents& e, const Function& function) {
  const cuda::ProductPlan plan = plan_product(kernel, e);
  Tensor partial = Tensor::empty({std::max<std::int64_t>(plan.partial_elements(e), 1)}, dtype_of<T>, kGpu);
  Tensor out = Tensor::empty(shape, dtype_of<T>, kGpu);
  function(cuda::compute_stream(kGpu), plan, out.mutable_data<T>(), partial.mutable_data<T>());
  return out.to(Device{});
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

std::string name_of_kernel(const ::testing::TestParamInfo<ProductKernel>& info) {
  constexpr const char* kNames[] = {"plain", "tiled", "registers", "tensor_cores"};
  return kNames[static_cast<std::size_t>(info.param)];
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
      const float large = *value * 8193;  // the high part of a split by Dekker: 11 bits in all
      *value = large - (large - *value);
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

TEST_P(CudaProducts, Conv2d) {
  for (const auto& e : {conv(1, 1, 1, 1, 1, 1, 1, 0), conv(2, 3, 6, 5, 4, 3, 1, 1), conv(1, 6, 14, 14, 16, 5, 1, 0),
                        conv(2, 2, 7, 9, 3, 3, 2, 1), conv(1, 4, 5, 8, 17, 1, 2, 0), conv(2, 1, 8, 7, 5, 2, 3, 2)}) {
    check_conv<float>(e);
    check_conv<double>(e);
  }
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

// Tensor cores round factors, so real numbers would show little; whole ones must come out exactly.
TEST(CudaProducts, TensorCoresAreExactOnWholeNumbers) {
  if (!test::has_cuda() || !has_tensor_cores()) {
    GTEST_SKIP() << (test::has_cuda() ? "this GPU has no tensor cores for TF32" : test::why_no_cuda());
  }
  for (const auto& [samples, inputs, outputs] :
       {std::array{1, 1, 1}, {17, 16, 9}, {64, 32, 128}, {65, 33, 129}, {130, 47, 260}, {40, 1500, 30}}) {
    SCOPED_TRACE(fmt::format("{} samples, {} inputs, {} outputs", samples, inputs, outputs));
    const cuda::LinearExtents e{samples, inputs, outputs};
    const Tensor x = whole_numbers({samples, inputs}, "x");
    const Tensor weight = whole_numbers({outputs, inputs}, "weight");
    const Tensor bias = whole_numbers({outputs}, "bias");
    Tensor y = Tensor::empty({samples, outputs});
    cpu::plain::linear<float>({samples, inputs, outputs}, x.data<float>(), weight.data<float>(), bias.data<float>(),
                              y.mutable_data<float>());
    const Tensor there_x = x.to(kGpu), there_weight = weight.to(kGpu), there_bias = bias.to(kGpu);
    EXPECT_TRUE(test::same_bytes(
        on_gpu<float>(y.shape(), ProductKernel::tensor_cores, e.forward(),
                      [&](cudaStream_t stream, const cuda::ProductPlan& plan, float* out, float* partial) {
                        cuda::linear<float>(stream, plan, e, there_x.data<float>(), there_weight.data<float>(),
                                            there_bias.data<float>(), out, partial);
                      }),
        y));
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

// The large tiles at once, with a shallow depth: their results are many.
TEST(CudaProducts, LargeTiles) {
  if (!test::has_cuda()) {
    GTEST_SKIP() << test::why_no_cuda();
  }
  for (const int columns : {64 * 128 - 3, 128 * 128 - 5}) {
    const int rows = columns > 10000 ? 127 : 63;
    const Tensor x = random_tensor({rows, 3}, "x", DType::float32);
    const Tensor weight = random_tensor({columns, 3}, "weight", DType::float32);
    const cuda::LinearExtents e{rows, 3, columns};
    Tensor y = Tensor::empty({rows, columns});
    cpu::plain::linear<float>({rows, 3, columns}, x.data<float>(), weight.data<float>(), nullptr,
                              y.mutable_data<float>());
    const Tensor there_x = x.to(kGpu), there_weight = weight.to(kGpu);
    EXPECT_TRUE(near(on_gpu<float>(y.shape(), ProductKernel::registers, e.forward(),
                                   [&](cudaStream_t stream, const cuda::ProductPlan& plan, float* out, float* partial) {
                                     cuda::linear<float>(stream, plan, e, there_x.data<float>(),
                                                         there_weight.data<float>(), nullptr, out, partial);
                                   }),
                     y, 3));
  }
}

}  // namespace
}  // namespace stagecoach
