#pragma once
/// @file
/// Tensor cores on a CPU, in place of the header of this name in core/.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <source_location>

#include "tests/emulation/block.h"

namespace stagecoach::cuda {

inline std::uint32_t round_to_tf32(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const bool is_number = (bits & 0x7f800000U) != 0x7f800000U;
  return is_number ? (bits + 0xfffU + (bits >> 13 & 1U)) & ~0x1fffU : bits;
}

/// A factor as a tensor core reads it: the bits after the 10th of the fraction are dropped.
inline float seen_as_tf32(std::uint32_t bits) { return std::bit_cast<float>(bits & ~0x1fffU); }

/// An error unless all threads of the warp call it, at the same place.
void multiply_tf32(float (&sums)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                   std::source_location where = std::source_location::current());

// ---- Warpgroups

inline constexpr int kWarpgroup = 128;
inline constexpr int kWarpgroupRows = 64;
inline constexpr int kCoreRows = 8;
inline constexpr int kCoreK = 4;

struct StridedFactor {
  const float* first;
  std::ptrdiff_t along_k;
  std::ptrdiff_t along_rows;
  StridedFactor operator+(int floats) const { return {first + floats, along_k, along_rows}; }
};
inline StridedFactor strided_factor(const float* first, int along_k, int along_rows) {
  return {first, along_k, along_rows};
}

inline void publish_to_tensor_cores() {}
inline void begin_products() {}
inline void end_products() {}
inline void wait_for_products() {}

/// Is done at once, and not beside the threads.
void start_product(float (&sums)[32], StridedFactor a, StridedFactor b);
void start_product(float (&sums)[64], StridedFactor a, StridedFactor b);
void start_product(float (&sums)[96], StridedFactor a, StridedFactor b);
void start_product(float (&sums)[112], StridedFactor a, StridedFactor b);
void start_product(float (&sums)[128], StridedFactor a, StridedFactor b);

}  // namespace stagecoach::cuda
