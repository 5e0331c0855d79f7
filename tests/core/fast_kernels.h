#pragma once
/// @file
/// Arrays with which the tests compare the fast kernels of the CPU with the plain ones.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/random.h"

namespace stagecoach::test {

template <class T>
std::vector<T> random_values(std::int64_t count, std::uint64_t key) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<T>(Philox(key).uniform(i) * 2 - 1);
  }
  return values;
}

/// What a kernel writes to. It starts as NaN, so that a missing element is seen, and guards follow it.
template <class T>
class Output {
 public:
  explicit Output(std::int64_t count)
      : count_(static_cast<std::size_t>(count)), values_(count_ + kGuards, std::numeric_limits<T>::quiet_NaN()) {}
  T* data() { return values_.data(); }

  /// Both sums of `terms` products of numbers in -1 … 1 are within a few sqrt(terms) roundings of the true one.
  ::testing::AssertionResult near(const Output& plain, std::int64_t terms) const {
    const double bound = 8 * std::sqrt(static_cast<double>(terms) + 1) * std::numeric_limits<T>::epsilon();
    for (std::size_t i = 0; i < count_; ++i) {
      const double scale = 1 + std::abs(static_cast<double>(plain.values_[i]));
      if (!(std::abs(static_cast<double>(values_[i]) - plain.values_[i]) <= bound * scale)) {
        return ::testing::AssertionFailure() << "element " << i << ": " << values_[i] << " against " << plain.values_[i]
                                             << ", bound " << bound * scale;
      }
    }
    for (std::size_t i = count_; i < values_.size(); ++i) {
      if (!std::isnan(values_[i])) {
        return ::testing::AssertionFailure() << "wrote " << i - count_ << " elements beyond the end";
      }
    }
    return ::testing::AssertionSuccess();
  }

 private:
  static constexpr std::size_t kGuards = 64;
  std::size_t count_;
  std::vector<T> values_;
};

}  // namespace stagecoach::test
