#pragma once
/// @file
/// Every kernel of a GPU against its twin on the CPU. The tests of the files kernel_twins_*_test.cpp exist only where
/// there is a GPU.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "core/kernels/kernels.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace stagecoach::test {

/// float32 and float64, or nothing at all without a GPU.
inline std::vector<DType> twin_types() {
  return has_cuda() ? std::vector<DType>{DType::float32, DType::float64} : std::vector<DType>{};
}

/// The suite's tests for both types: "cuda/<suite>.<test>/float32".
#define STAGECOACH_KERNEL_TWINS(suite)                                                         \
  GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(suite);                                        \
  INSTANTIATE_TEST_SUITE_P(cuda, suite, ::testing::ValuesIn(::stagecoach::test::twin_types()), \
                           [](const auto& tested) { return std::string(name_of(tested.param)); })

/// What a kernel writes to starts as this, so that an element left out is seen.
inline Tensor unset(const Shape& shape, DType dtype) {
  const bool floating = dtype != DType::int32 && dtype != DType::uint8;
  return Tensor::full(shape, floating ? std::numeric_limits<double>::quiet_NaN() : 77, dtype);
}

/// A copy of `tensor` on `device` that begins at an odd offset of a larger storage, with guards on both sides.
class Guarded {
 public:
  Guarded(const Tensor& tensor, Device device) {
    whole_ = unset({tensor.numel() + 2 * kGuards}, tensor.dtype());
    Tensor inside = whole_.alias(tensor.shape(), kGuards);
    inside.copy_from(tensor);
    whole_ = whole_.to(device);
    view_ = whole_.alias(tensor.shape(), kGuards);
  }
  const Tensor& view() const { return view_; }

  ::testing::AssertionResult guards_stand() const {
    const Tensor guard = unset({kGuards}, whole_.dtype());
    for (const std::int64_t start : {std::int64_t{0}, kGuards + view_.numel()}) {
      if (const auto same = same_bytes(whole_.alias({kGuards}, start), guard); !same) {
        return ::testing::AssertionFailure() << (start == 0 ? "before" : "after") << " the tensor: " << same.message();
      }
    }
    return ::testing::AssertionSuccess();
  }

 private:
  static constexpr std::int64_t kGuards = 3;
  Tensor whole_;
  Tensor view_;
};

/// Integers and halves are equal. Floating numbers are within 1e-5 + 1e-4 |b| in float32 and 1e-12 (1 + |b|) in
/// float64, times sqrt(terms) for sums of so many terms; or both are NaN, or the same infinity.
inline ::testing::AssertionResult twins_agree(const Tensor& a, const Tensor& b, std::int64_t terms) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) {
    return ::testing::AssertionFailure() << describe(a) << " against " << describe(b);
  }
  if (a.dtype() != DType::float32 && a.dtype() != DType::float64) {
    return same_bytes(a, b);
  }
  const bool single = a.dtype() == DType::float32;
  const double atol = single ? 1e-5 : 1e-12;
  const double rtol = single ? 1e-4 : 1e-12;
  const double factor = std::sqrt(static_cast<double>(std::max<std::int64_t>(terms, 1)));
  const auto x = values_of(a);
  const auto y = values_of(b);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool both_none = std::isnan(x[i]) && std::isnan(y[i]);
    if (!both_none && x[i] != y[i] && !(std::abs(x[i] - y[i]) <= factor * (atol + rtol * std::abs(y[i])))) {
      return ::testing::AssertionFailure() << describe(a) << ", element " << i << ": " << x[i] << " against " << y[i];
    }
  }
  return ::testing::AssertionSuccess();
}

using Tensors = std::vector<Tensor>;
using Call = std::function<void(const Kernels& kernels, Tensors& tensors)>;

/// Makes one call on the CPU and on the GPU, on copies of `tensors` (on the CPU; some may be undefined), and compares
/// all of them afterwards, inputs too. On the GPU three times with equal bytes, and once on views at odd offsets.
inline void expect_twins(const Tensors& tensors, const Call& call, std::int64_t terms = 1, Device twin = kCuda) {
  const auto copies = [&](Device device) {
    Tensors all;
    for (const Tensor& tensor : tensors) {
      all.push_back(!tensor.defined() ? Tensor() : device == Device{} ? tensor.clone() : tensor.to(device));
    }
    return all;
  };
  const auto for_each = [&](const auto& body) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].defined()) {
        body(i);
      }
    }
  };
  Tensors cpu = copies({});
  call(kernels({}), cpu);
  Tensors first = copies(twin);
  call(kernels(twin), first);
  for_each([&](std::size_t i) {
    if (same_bytes(cpu[i], tensors[i])) {
      EXPECT_TRUE(same_bytes(first[i], tensors[i])) << "tensor " << i << ", which the call only reads";
    } else {
      EXPECT_TRUE(twins_agree(first[i], cpu[i], terms)) << "tensor " << i;
    }
  });
  for (int again = 0; again < 2; ++again) {
    Tensors next = copies(twin);
    call(kernels(twin), next);
    for_each([&](std::size_t i) { EXPECT_TRUE(same_bytes(next[i], first[i])) << "tensor " << i << ", once more"; });
  }
  std::vector<Guarded> guarded;
  Tensors views(tensors.size());
  for_each([&](std::size_t i) {
    guarded.emplace_back(tensors[i], twin);
    views[i] = guarded.back().view();
  });
  call(kernels(twin), views);
  for_each([&](std::size_t i) { EXPECT_TRUE(twins_agree(views[i], cpu[i], terms)) << "tensor " << i << " as a view"; });
  for (const Guarded& each : guarded) {
    EXPECT_TRUE(each.guards_stand());
  }
}

/// The fixture: tensors of the test's type, on the CPU.
class KernelTwins : public ::testing::TestWithParam<DType> {
 protected:
  static Tensor random(const Shape& shape, const std::string& name) { return random_tensor(shape, name, GetParam()); }
  static Tensor unset(const Shape& shape) { return test::unset(shape, GetParam()); }
  /// Numbers in 0.5 … 1.5.
  static Tensor positive(const Shape& shape, const std::string& name) {
    const Philox random(7, name);
    std::vector<double> values(static_cast<std::size_t>(shape.numel()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = 0.5 + random.uniform(i);
    }
    return typed(values, shape, GetParam());
  }
};

}  // namespace stagecoach::test
