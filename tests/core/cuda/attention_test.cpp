// Attention on tensor cores, against the plain loops of the CPU in float64.

#include "core/kernels/cpu/attention.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "core/cuda_backend.h"
#include "core/kernels/kernels.h"
#include "tests/core/kernel_twins.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using cpu::AttentionShape;
using test::kCuda;

class TensorCoreAttention : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_cuda()) {
      GTEST_SKIP() << test::why_no_cuda();
    }
    cuda::allow_tf32(true);
    if (!cuda::uses_tf32(kCuda)) {
      GTEST_SKIP() << "this GPU has no tensor cores for TF32";
    }
  }
  void TearDown() override {
    if (test::has_cuda()) {
      cuda::allow_tf32(false);
    }
  }

  /// TF32 rounds factors, softmax's results among them, to within 2^-11 of themselves.
  static ::testing::AssertionResult near(const Tensor& got, const std::vector<double>& expected) {
    const std::vector<double> values = test::values_of(got);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (!(std::abs(values[i] - expected[i]) <= 4e-3 + 4e-3 * std::abs(expected[i]))) {
        return ::testing::AssertionFailure() << "element " << i << ": " << values[i] << " against " << expected[i];
      }
    }
    return ::testing::AssertionSuccess();
  }

  /// Calls `call` on inputs anywhere in their storage; the last tensor is the result, and its bytes are always the
  /// same.
  static Tensor result_of(const test::Call& call, const test::Tensors& tensors) {
    test::Tensors whole;
    for (const Tensor& tensor : tensors) {
      whole.push_back(tensor.to(kCuda));
    }
    call(kernels(kCuda), whole);
    std::vector<test::Guarded> guarded;
    test::Tensors views;
    for (const Tensor& tensor : tensors) {
      views.push_back(guarded.emplace_back(tensor, kCuda).view());
    }
    call(kernels(kCuda), views);
    EXPECT_TRUE(test::same_bytes(views.back(), whole.back())) << "as a view";
    for (const test::Guarded& each : guarded) {
      EXPECT_TRUE(each.guards_stand());
    }
    return whole.back();
  }

  static void check_masked(const AttentionShape& s, const Tensor& qkv) {
    SCOPED_TRACE(fmt::format("{} samples, {} tokens, width {}, {} heads, {} mask", s.samples, s.tokens, s.width,
                             s.heads, s.mask == AttentionMask::causal ? "causal" : "no"));
    const Shape out{s.samples, s.tokens, s.width};
    const Tensor grad = test::random_tensor(out, "grad", DType::float32);
    const std::vector<double> exact_qkv = test::values_of(qkv);
    const std::vector<double> exact_grad = test::values_of(grad);
    std::vector<double> expected(exact_grad.size());
    cpu::plain::attention(s, exact_qkv.data(), expected.data());
    EXPECT_TRUE(near(result_of([&](const Kernels& k, test::Tensors& t) { k.attention(t[0], s.heads, s.mask, t[1]); },
                               {qkv, test::unset(out, DType::float32)}),
                     expected));
    expected.resize(exact_qkv.size());
    cpu::plain::attention_grad(s, exact_grad.data(), exact_qkv.data(), expected.data());
    EXPECT_TRUE(
        near(result_of([&](const Kernels& k, test::Tensors& t) { k.attention_grad(t[0], t[1], s.heads, s.mask, t[2]); },
                       {grad, qkv, test::unset(qkv.shape(), DType::float32)}),
             expected));
  }
  static void check(AttentionShape s, const Tensor& qkv) {
    for (const AttentionMask mask : {AttentionMask::none, AttentionMask::causal}) {
      s.mask = mask;
      check_masked(s, qkv);
    }
  }
  static void check(const AttentionShape& s) {
    check(s, test::random_tensor({s.samples, s.tokens, 3 * s.width}, "qkv", DType::float32));
  }
};

TEST_F(TensorCoreAttention, OfOneTile) {
  for (const std::int64_t width : {1, 6, 16, 20, 33, 64}) {
    check({2, 17, 2 * width, 2});
    check({1, 64, width, 1});
  }
}

TEST_F(TensorCoreAttention, OfSeveralTiles) {
  for (const std::int64_t width : {16, 32, 48}) {
    check({1, 65, width, 1});
    check({1, 150, 2 * width, 2});
  }
}

TEST_F(TensorCoreAttention, OfOneToken) { check({3, 1, 16, 1}); }

TEST_F(TensorCoreAttention, EmptyBatch) { check({0, 4, 16, 1}); }

// They are not on tensor cores, for lack of registers.
TEST_F(TensorCoreAttention, OfWiderHeads) { check({1, 20, 65, 1}); }

// Scores that exp cannot take, and whose maximum grows from token to token.
TEST_F(TensorCoreAttention, OfLargeNumbers) {
  const Shape shape{1, 150, 3 * 16};
  std::vector<float> qkv(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < qkv.size(); ++i) {
    const std::size_t token = i / 48;
    const std::size_t part = i % 48 / 16;  // of queries, keys and values
    qkv[i] = part == 0 ? 8 : part == 1 ? static_cast<float>(token) / 16 : static_cast<float>(i % 7) / 8;
  }
  check({1, 150, 16, 1}, Tensor::from(qkv, shape));
}

}  // namespace
}  // namespace stagecoach
