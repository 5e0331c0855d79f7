#pragma once
/// @file
/// A floating number in 16 bits (IEEE 754 binary16: a sign, 5 bits of exponent, 10 of fraction). It is stored and it
/// travels, in half the bytes of a float; nothing is computed with it but these conversions.
///
/// They are arithmetic on the bits of a float without a branch, so that the compiler turns a loop of them into vector
/// code. GPUs run the same lines: every device gives the same bytes. Source: Giesen, "Float->half variants", 2012
/// (gist.github.com/rygorous/2156668), of which this takes the rounding and the trick for subnormal numbers.

#include <algorithm>
#include <bit>
#include <cstdint>

namespace stagecoach {

/// Its bits.
enum class Half : std::uint16_t {};

/// The nearest one; of two that are equally near, the one whose last bit is 0. Infinity from 65520 on, zero up to
/// 2^-25. NaN stays NaN, with its upper bits.
constexpr Half to_half(float value) {
  constexpr std::uint32_t kInfinity = 0x7f800000;
  constexpr std::uint32_t kMinNormal = 0x38800000;  // 2^-14: below it halves are subnormal
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t size = bits & 0x7fffffff;  // without the sign
  // Exponents are stored with 127 added to them, in a half with 15. Of the fraction's 23 bits 13 go: with half of what
  // the last remaining one is worth added (less 1 if it is 0), cutting them off rounds. A carry rightly goes on into
  // the exponent, and what then is larger than any half is infinite.
  const std::uint32_t rounded = (size - ((127U - 15U) << 23) + 0xfff + ((size >> 13) & 1)) >> 13;
  const std::uint32_t normal = std::min<std::uint32_t>(rounded, 0x7c00);
  // Floats from 0.5 to 1 are 2^-24 apart, as subnormal halves are: adding 0.5 rounds to these.
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + 0.5F) - std::bit_cast<std::uint32_t>(0.5F);
  const std::uint32_t carried = (size >> 13) & 0x3ff;
  const std::uint32_t nan_bits = 0x7c00 | (carried == 0 ? 0x200 : carried);
  const std::uint32_t half = (size < kMinNormal ? subnormal : normal) | (size > kInfinity ? nan_bits : 0);
  return static_cast<Half>(half | (bits >> 16 & 0x8000));
}

/// Exact.
constexpr float to_float(Half half) {
  const auto bits = static_cast<std::uint32_t>(half);
  const std::uint32_t size = (bits & 0x7fff) << 13;
  const std::uint32_t normal = size + ((127U - 15U) << 23);
  const std::uint32_t infinite = size | 0x7f800000;  // or NaN
  // A float of that exponent has a leading 1 that the half has not: it is taken off again.
  const float subnormal = std::bit_cast<float>(normal + (1U << 23)) - 0x1p-14F;
  const std::uint32_t finite = size < (1U << 23) ? std::bit_cast<std::uint32_t>(subnormal) : normal;
  const std::uint32_t wide = size >= (0x7c00U << 13) ? infinite : finite;
  return std::bit_cast<float>(wide | (bits & 0x8000) << 16);
}

}  // namespace stagecoach
