#pragma once
/// @file
/// A 16-bit floating-point number (IEEE 754 binary16: a sign, 5 bits of exponent, 10 of fraction). It is for storage
/// and transfer, in half the bytes of a float; the conversions here are its only operations.
///
/// The conversions are branch-free arithmetic on the bits of a float, so that the compiler can vectorize a loop over
/// them. GPUs run the same code, so every device produces the same bytes. Source: Giesen, "Float->half variants", 2012
/// (gist.github.com/rygorous/2156668), from which the rounding and the treatment of subnormal numbers are taken.

#include <algorithm>
#include <bit>
#include <cstdint>

namespace stagecoach {

/// The bits of a half.
enum class Half : std::uint16_t {};

/// Returns the nearest half; of two equally near ones, the one whose last bit is 0. Values from 65520 on become
/// infinity, and values up to 2^-25 zero. NaN stays NaN, with its upper bits.
constexpr Half to_half(float value) {
  constexpr std::uint32_t kInfinity = 0x7f800000;
  constexpr std::uint32_t kMinNormal = 0x38800000;  // 2^-14: below it halves are subnormal
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t size = bits & 0x7fffffff;  // without the sign
  // The exponent has a bias of 127 in a float and of 15 in a half. 13 of the fraction's 23 bits are dropped: adding
  // half of the last remaining bit's value (less 1 if that bit is 0) before truncation rounds to nearest even. A carry
  // correctly propagates into the exponent, and a result larger than any half becomes infinity.
  const std::uint32_t rounded = (size - ((127U - 15U) << 23) + 0xfff + ((size >> 13) & 1)) >> 13;
  const std::uint32_t normal = std::min<std::uint32_t>(rounded, 0x7c00);
  // Floats from 0.5 to 1 are 2^-24 apart, as subnormal halves are: adding 0.5 rounds to this spacing.
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + 0.5F) - std::bit_cast<std::uint32_t>(0.5F);
  const std::uint32_t carried = (size >> 13) & 0x3ff;
  const std::uint32_t nan_bits = 0x7c00 | (carried == 0 ? 0x200 : carried);
  const std::uint32_t half = (size < kMinNormal ? subnormal : normal) | (size > kInfinity ? nan_bits : 0);
  return static_cast<Half>(half | (bits >> 16 & 0x8000));
}

/// Returns the value of `half`, exactly.
constexpr float to_float(Half half) {
  const auto bits = static_cast<std::uint32_t>(half);
  const std::uint32_t size = (bits & 0x7fff) << 13;
  const std::uint32_t normal = size + ((127U - 15U) << 23);
  const std::uint32_t infinite = size | 0x7f800000;  // or NaN
  // A float with that exponent has an implicit leading 1 that the subnormal half does not have: it is subtracted again.
  const float subnormal = std::bit_cast<float>(normal + (1U << 23)) - 0x1p-14F;
  const std::uint32_t finite = size < (1U << 23) ? std::bit_cast<std::uint32_t>(subnormal) : normal;
  const std::uint32_t wide = size >= (0x7c00U << 13) ? infinite : finite;
  return std::bit_cast<float>(wide | (bits & 0x8000) << 16);
}

}  // namespace stagecoach
