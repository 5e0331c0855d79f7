#pragma once
/// @file
/// Tensors with which the tests compare the fast kernels of the CPU with the plain ones.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/random.h"
#include "core/tensor.h"

namespace stagecoach::test {

/// Numbers in -1 … 1.
template <class T>
Tensor uniform_tensor(const Shape& shape, std::uint64_t key, Device device) {
  std::vector<T> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<T>(Philox(key).uniform(i) * 2 - 1);
  }
  return Tensor::from(values, shape, device);
}

/// What a kernel writes to, with guards on both sides. It starts as NaN, so that a missing element is seen.
template <class T>
class Output {
 public:
  Output(const Shape& shape, Device device)
      : guarded_(
            Tensor::full({shape.numel() + 2 * kGuards}, std::numeric_limits<double>::quiet_NaN(), dtype_of<T>, device)),
        tensor_(guarded_.alias(shape, kGuards)) {}
  Tensor& tensor() { return tensor_; }
  T* data() { return tensor_.mutable_data<T>(); }

  /// Both sums of `terms` products of numbers in -1 … 1 are within a few sqrt(terms) roundings of the true one.
  ::testing::AssertionResult near(const Output& plain, std::int64_t terms) const {
    const double bound = 8 * std::sqrt(static_cast<double>(terms) + 1) * std::numeric_limits<T>::epsilon();
    const T* values = tensor_.data<T>();
    const T* expected = plain.tensor_.data<T>();
    for (std::int64_t i = 0; i < tensor_.numel(); ++i) {
      const double scale = 1 + std::abs(static_cast<double>(expected[i]));
      if (!(std::abs(static_cast<double>(values[i]) - expected[i]) <= bound * scale)) {
        return ::testing::AssertionFailure()
               << "element " << i << ": " << values[i] << " against " << expected[i] << ", bound " << bound * scale;
      }
    }
    for (std::int64_t i = 0; i < kGuards; ++i) {
      if (!std::isnan(values[i - kGuards])) {
        return ::testing::AssertionFailure() << "wrote " << kGuards - i << " elements before the beginning";
      }
      if (!std::isnan(values[tensor_.numel() + i])) {
        return ::testing::AssertionFailure() << "wrote " << i << " elements beyond the end";
      }
    }
    return ::testing::AssertionSuccess();
  }

 private:
  static constexpr std::int64_t kGuards = 64;  // a multiple of the alignment of tensors
  Tensor guarded_;
  Tensor tensor_;
};

}  // namespace stagecoach::test
