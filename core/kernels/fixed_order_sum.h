#pragma once
/// @file
/// The order in which the squares of a gradient are added, the same on every device and for every cut of a model.

#include <cstdint>

namespace stagecoach {

/// The elements of a tensor whose squares are added first; then the sums of these blocks (Kernels::sums_of_squares).
inline constexpr std::int64_t kSquaresBlock = 1024;

/// Returns the sum of value(0) … value(count - 1) in the order in which a warp of a GPU adds: 32 sums side by side, and
/// then these pairwise.
template <class Value>
double warp_sum(std::int64_t count, const Value& value) {
  constexpr std::int64_t kWarp = 32;
  double sums[kWarp] = {};
  for (std::int64_t i = 0; i < count / kWarp * kWarp; i += kWarp) {
    for (std::int64_t t = 0; t < kWarp; ++t) {
      sums[t] += value(i + t);
    }
  }
  for (std::int64_t i = count / kWarp * kWarp; i < count; ++i) {
    sums[i % kWarp] += value(i);
  }
  for (std::int64_t distance = kWarp / 2; distance > 0; distance /= 2) {
    for (std::int64_t t = 0; t < distance; ++t) {
      sums[t] += sums[t + distance];
    }
  }
  return sums[0];
}

}  // namespace stagecoach
