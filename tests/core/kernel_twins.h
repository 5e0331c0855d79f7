#pragma once
/// @file
/// Every kernel against its twin on the CPU: those of a GPU, where there is one, and those of each higher level of
/// processors (core/kernels/levels.h) that was built and is supported here. Other builds have no tests of the files
/// kernel_twins_*_test.cpp.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "core/kernels/cpu/tables.h"
#include "core/kernels/kernels.h"
#include "core/kernels/levels.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace stagecoach::test {

struct Twin {
  DType dtype;
  const cpu::Level* level;  ///< none: the GPU
};

inline void PrintTo(const Twin& twin, std::ostream* out) { *out << name_of(twin.dtype); }

/// "float32", or "float32_x86_64_v3".
inline std::string name_of(const Twin& twin) {
  std::string name = name_of(twin.dtype);
  if (twin.level != nullptr) {
    name += "_" + std::string(twin.level->name);
    std::replace(name.begin(), name.end(), '-', '_');
  }
  return name;
}

/// The GPU with float32 and float64, or nothing at all without one.
inline std::vector<Twin> cuda_twins() {
  return has_cuda() ? std::vector<Twin>{{DType::float32, nullptr}, {DType::float64, nullptr}} : std::vector<Twin>{};
}

/// The levels above the lowest, with both types.
inline std::vector<Twin> level_twins() {
  std::vector<Twin> all;
  for (const cpu::Level& level : cpu::built_levels().subspan(1)) {
    if (level.is_supported) {
      all.push_back({DType::float32, &level});
      all.push_back({DType::float64, &level});
    }
  }
  return all;
}

#define STAGECOACH_TWINS_OF(kind, suite)                                                         \
  INSTANTIATE_TEST_SUITE_P(kind, suite, ::testing::ValuesIn(::stagecoach::test::kind##_twins()), \
                           [](const auto& tested) { return ::stagecoach::test::name_of(tested.param); })
/// The suite's tests for GPUs: "cuda/<suite>.<test>/float32".
#define STAGECOACH_CUDA_TWINS(suite)                    \
  GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(suite); \
  STAGECOACH_TWINS_OF(cuda, suite)
/// The suite's tests for GPUs and for levels: "level/<suite>.<test>/float32_x86_64_v3".
#define STAGECOACH_KERNEL_TWINS(suite) \
  STAGECOACH_CUDA_TWINS(suite);        \
  STAGECOACH_TWINS_OF(level, suite)

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

/// How far the results of twins may differ: absolutely, and relative to their size.
struct TwinBounds {
  double absolute;
  double relative;
};

/// A GPU adds in another order, and its exp, log and tanh are its own.
inline TwinBounds bounds_of_cuda(DType dtype) {
  return dtype == DType::float32 ? TwinBounds{1e-5, 1e-4} : TwinBounds{1e-12, 1e-12};
}

/// Levels add in another order, and fuse multiplications with additions or not.
inline TwinBounds bounds_of_levels(DType dtype) {
  return dtype == DType::float32 ? TwinBounds{1e-6, 1e-6} : TwinBounds{2e-15, 2e-15};
}

/// Integers and halves are equal. Floating numbers are within the bounds, times sqrt(terms) for sums of so many terms;
/// or both are NaN, or the same infinity.
inline ::testing::AssertionResult twins_agree(const Tensor& a, const Tensor& b, std::int64_t terms,
                                              TwinBounds (*bounds_of)(DType)) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) {
    return ::testing::AssertionFailure() << describe(a) << " against " << describe(b);
  }
  if (a.dtype() != DType::float32 && a.dtype() != DType::float64) {
    return same_bytes(a, b);
  }
  const auto [atol, rtol] = bounds_of(a.dtype());
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

/// Makes one call on the CPU and by the twin, on copies of `tensors` (on the CPU; some may be undefined), and compares
/// all of them afterwards, inputs too. By the twin three times with equal bytes, and once on views at odd offsets.
inline void expect_twins(const Twin& twin, const Tensors& tensors, const Call& call, std::int64_t terms) {
  const Device device = twin.level == nullptr ? kCuda : Device{};
  const Kernels& own = twin.level == nullptr ? kernels(kCuda) : twin.level->tables()->kernels;
  const Kernels& lowest = cpu::built_levels().front().tables()->kernels;
  const auto bounds = twin.level == nullptr ? bounds_of_cuda : bounds_of_levels;
  const auto copies = [&](Device where) {
    Tensors all;
    for (const Tensor& tensor : tensors) {
      all.push_back(!tensor.defined() ? Tensor() : where == Device{} ? tensor.clone() : tensor.to(where));
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
  call(lowest, cpu);
  Tensors first = copies(device);
  call(own, first);
  for_each([&](std::size_t i) {
    if (same_bytes(cpu[i], tensors[i])) {
      EXPECT_TRUE(same_bytes(first[i], tensors[i])) << "tensor " << i << ", which the call only reads";
    } else {
      EXPECT_TRUE(twins_agree(first[i], cpu[i], terms, bounds)) << "tensor " << i;
    }
  });
  for (int again = 0; again < 2; ++again) {
    Tensors next = copies(device);
    call(own, next);
    for_each([&](std::size_t i) { EXPECT_TRUE(same_bytes(next[i], first[i])) << "tensor " << i << ", once more"; });
  }
  std::vector<Guarded> guarded;
  Tensors views(tensors.size());
  for_each([&](std::size_t i) {
    guarded.emplace_back(tensors[i], device);
    views[i] = guarded.back().view();
  });
  call(own, views);
  for_each([&](std::size_t i) {
    EXPECT_TRUE(twins_agree(views[i], cpu[i], terms, bounds)) << "tensor " << i << " as a view";
  });
  for (const Guarded& each : guarded) {
    EXPECT_TRUE(each.guards_stand());
  }
}

/// The fixture: tensors of the test's type, on the CPU.
class KernelTwins : public ::testing::TestWithParam<Twin> {
 protected:
  static DType type() { return GetParam().dtype; }
  static void expect_twins(const Tensors& tensors, const Call& call, std::int64_t terms = 1) {
    test::expect_twins(GetParam(), tensors, call, terms);
  }
  static Tensor random(const Shape& shape, const std::string& name) { return random_tensor(shape, name, type()); }
  static Tensor unset(const Shape& shape) { return test::unset(shape, type()); }
  /// Numbers in 0.5 … 1.5.
  static Tensor positive(const Shape& shape, const std::string& name) {
    const Philox random(7, name);
    std::vector<double> values(static_cast<std::size_t>(shape.numel()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = 0.5 + random.uniform(i);
    }
    return typed(values, shape, type());
  }
};

}  // namespace stagecoach::test
