// The fast kernels of transformers against the plain ones, around the widths of vectors and of blocks of queries.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "core/kernels/cpu/attention.h"
#include "core/kernels/cpu/gelu.h"
#include "core/kernels/cpu/matmul.h"
#include "core/kernels/kernels.h"
#include "tests/core/fast_kernels.h"
#include "tests/support/devices.h"

namespace stagecoach {
namespace {

using cpu::AttentionShape;
using cpu::MatmulShape;
using test::Output;
using test::uniform_tensor;

template <class T>
void check_attention(Device device, const AttentionShape& s) {
  const Tensor qkv = uniform_tensor<T>({s.samples, s.tokens, 3 * s.width}, 1, device);
  const Tensor grad_y = uniform_tensor<T>({s.samples, s.tokens, s.width}, 2, device);
  Output<T> y(grad_y.shape(), device), plain_y(grad_y.shape(), device);
  kernels(device).attention(qkv, s.heads, s.mask, y.tensor());
  cpu::plain::attention(s, qkv.data<T>(), plain_y.data());
  EXPECT_TRUE(y.near(plain_y, s.tokens));
  Output<T> grad(qkv.shape(), device), plain_grad(qkv.shape(), device);
  kernels(device).attention_grad(grad_y, qkv, s.heads, s.mask, grad.tensor());
  cpu::plain::attention_grad(s, grad_y.data<T>(), qkv.data<T>(), plain_grad.data());
  EXPECT_TRUE(grad.near(plain_grad, s.tokens));
}

TEST(FastAttention, AgreesWithPlain) {
  const Device device = test::fresh_device();
  const test::ThreadsFor threads(device, 2);
  for (AttentionShape s : {AttentionShape{1, 1, 1, 1},
                           {2, 5, 6, 2},
                           {1, 16, 32, 2},
                           {3, 17, 12, 4},
                           {1, 64, 64, 4},
                           {2, 65, 20, 1},
                           {1, 150, 34, 2}}) {
    for (const AttentionMask mask : {AttentionMask::none, AttentionMask::causal}) {
      s.mask = mask;
      SCOPED_TRACE(fmt::format("{} samples, {} tokens, width {}, {} heads, {} mask", s.samples, s.tokens, s.width,
                               s.heads, mask == AttentionMask::causal ? "causal" : "no"));
      check_attention<float>(device, s);
      check_attention<double>(device, s);
    }
  }
}

// Scores far apart: exp of them would overflow, or be 0.
TEST(FastAttention, DoesNotOverflow) {
  const AttentionShape shape{1, 5, 4, 1};
  const Device device = test::fresh_device();
  Tensor qkv = Tensor::zeros({1, 5, 12}, DType::float32, device);
  kernels(device).add_scaled(uniform_tensor<float>(qkv.shape(), 1, device), 100, qkv);
  Output<float> y({1, 5, 4}, device), plain_y({1, 5, 4}, device);
  kernels(device).attention(qkv, shape.heads, shape.mask, y.tensor());
  cpu::plain::attention(shape, qkv.data<float>(), plain_y.data());
  EXPECT_TRUE(y.near(plain_y, 1000));
}

template <class T>
void check_matmul(Device device, const MatmulShape& s) {
  const Shape shape_a = s.transposed.a ? Shape{s.batches, s.k, s.m} : Shape{s.batches, s.m, s.k};
  const Shape shape_b = s.transposed.b ? Shape{s.batches, s.n, s.k} : Shape{s.batches, s.k, s.n};
  const Tensor a = uniform_tensor<T>(shape_a, 1, device);
  const Tensor b = uniform_tensor<T>(shape_b, 2, device);
  Output<T> out({s.batches, s.m, s.n}, device), plain_out({s.batches, s.m, s.n}, device);
  kernels(device).matmul(a, b, s.transposed, out.tensor());
  cpu::plain::matmul(s, a.data<T>(), b.data<T>(), plain_out.data());
  EXPECT_TRUE(out.near(plain_out, s.k));
}

TEST(FastMatmul, AgreesWithPlain) {
  const Device device = test::fresh_device();
  const test::ThreadsFor threads(device, 2);
  for (const Transposed transposed : {Transposed{false, false}, {true, false}, {false, true}, {true, true}}) {
    for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{1, 1, 1}, {7, 16, 5}, {6, 33, 17}, {17, 3, 40}}) {
      for (const std::int64_t batches : {1, 3}) {
        SCOPED_TRACE(fmt::format("{} times {} x {} x {}", batches, m, n, k));
        check_matmul<float>(device, {batches, m, n, k, transposed});
        check_matmul<double>(device, {batches, m, n, k, transposed});
      }
    }
  }
}

template <class T>
void check_exp() {
  const T least = cpu::ExpOf<T>::kLeast;
  const T most = cpu::ExpOf<T>::kMost;
  for (int i = 0; i <= 20'000; ++i) {
    const T x = least + (most - least) * static_cast<T>(i) / 20'000;
    const T expected = std::exp(x);
    ASSERT_NEAR(cpu::exp<T>(cpu::broadcast(x))[0] / expected, 1, 2 * std::numeric_limits<T>::epsilon()) << x;
  }
  constexpr T kNone = std::numeric_limits<T>::quiet_NaN();
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  EXPECT_TRUE(std::isnan(cpu::exp<T>(cpu::broadcast(kNone))[0]));
  EXPECT_LT(cpu::exp<T>(cpu::broadcast(-kInfinity))[0], 1e-37);
  EXPECT_GT(cpu::exp<T>(cpu::broadcast(kInfinity))[0], 1e38);
  EXPECT_EQ(cpu::exp<T>(cpu::broadcast(T(0)))[0], 1);
}

TEST(VecExp, IsWithinTwoUnitsOfTheLastPlace) {
  check_exp<float>();
  check_exp<double>();
}

template <class T>
void check_gelu() {
  for (int i = -600; i <= 600; ++i) {
    const T x = static_cast<T>(i) / 50;
    const T bound = 8 * std::numeric_limits<T>::epsilon() * (1 + std::abs(x));
    EXPECT_NEAR(cpu::fast::gelu<T>(cpu::broadcast(x))[0], cpu::plain::gelu(x, GeluForm::tanh), bound) << x;
    EXPECT_NEAR(cpu::fast::gelu_grad<T>(cpu::broadcast(x))[0], cpu::plain::gelu_grad(x, GeluForm::tanh), 4 * bound)
        << x;
  }
}

TEST(FastGelu, AgreesWithPlain) {
  check_gelu<float>();
  check_gelu<double>();
}

}  // namespace
}  // namespace stagecoach
