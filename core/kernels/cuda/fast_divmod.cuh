#pragma once
/// @file
/// Division by a number that is known before the kernel starts: a multiplication, an addition and a shift instead of
/// about 20 instructions. Source: Granlund and Montgomery, "Division by invariant integers using multiplication", 1994.

#include <algorithm>

#include "core/cuda/device_code.h"

namespace stagecoach::cuda {

/// For dividends from 0 to 2^31 - 1. The divisor of a tensor without elements may be 0: nothing is divided by it.
class FastDivmod {
 public:
  explicit FastDivmod(int divisor) : divisor_(static_cast<unsigned>(divisor)) {
    while ((1ULL << shift_) < divisor_) {
      ++shift_;
    }
    multiplier_ = static_cast<unsigned>(((1ULL << 32) * ((1ULL << shift_) - divisor_)) / std::max(divisor_, 1U) + 1);
  }
  __host__ __device__ int value() const { return static_cast<int>(divisor_); }
  __device__ int quotient(int dividend) const {
    const auto n = static_cast<unsigned>(dividend);
    const auto high = static_cast<unsigned>((static_cast<unsigned long long>(n) * multiplier_) >> 32);
    return static_cast<int>((high + n) >> shift_);
  }
  /// Returns the remainder, given the quotient.
  __device__ int remainder(int dividend, int quotient) const { return dividend - quotient * value(); }

 private:
  unsigned divisor_;
  unsigned multiplier_ = 0;
  unsigned shift_ = 0;
};

}  // namespace stagecoach::cuda
