#pragma once
/// @file
/// Tensor cores on a CPU, in place of the header of this name in core/.

#include <bit>
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

}  // namespace stagecoach::cuda
