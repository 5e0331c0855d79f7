#pragma once
/// @file
/// exp of a whole vector: the standard library computes one number at a time.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "core/kernels/cpu/vec.h"

namespace stagecoach::cpu {

/// What exp needs to know of a floating-point type.
template <class T>
struct ExpOf;

template <>
struct ExpOf<float> {
  using Bits = std::uint32_t;
  static constexpr int kMantissaBits = 23;
  static constexpr Bits kExponentBias = 127;
  static constexpr int kTerms = 8;  // of the series; the next one is less than a rounding
  static constexpr float kLeast = -87.3F;
  static constexpr float kMost = 88.3F;
  static constexpr float kHighLn2 = 0.693359375F;  // has few digits, so n * kHighLn2 is exact
  static constexpr float kLowLn2 = -2.12194440e-4F;
};

template <>
struct ExpOf<double> {
  using Bits = std::uint64_t;
  static constexpr int kMantissaBits = 52;
  static constexpr Bits kExponentBias = 1023;
  static constexpr int kTerms = 14;
  static constexpr double kLeast = -708;
  static constexpr double kMost = 709;
  static constexpr double kHighLn2 = 6.93145751953125e-1;
  static constexpr double kLowLn2 = 1.42860682030941723212e-6;
};

/// 1 / 0!, 1 / 1!, 1 / 2!, …
template <class T>
inline constexpr auto kInverseFactorials = [] {
  std::array<T, ExpOf<T>::kTerms> terms{};
  double factorial = 1;
  for (std::size_t k = 0; k < terms.size(); ++k) {
    factorial *= k > 0 ? static_cast<double>(k) : 1;
    terms[k] = static_cast<T>(1 / factorial);
  }
  return terms;
}();

/// Returns exp(x) to within 2 units in the last place, as 2^n exp(r) with a whole n and |r| <= ln(2) / 2 (Cody and
/// Waite 1980). Arguments beyond kLeast and kMost, whose results would be denormal or infinite, are taken as these. NaN
/// propagates.
template <class T>
inline Vec<T> exp(const Vec<T>& argument) {
  using E = ExpOf<T>;
  using BitsVec = Vec<typename E::Bits>;
  // Adding kShift leaves no bits for a fraction, and n in the lowest bits of the sum.
  constexpr T kShift = T(3) * static_cast<T>(typename E::Bits{1} << (E::kMantissaBits - 1));
  constexpr T kInverseLn2 = static_cast<T>(1.44269504088896340736);
  const Vec<T> least = broadcast(E::kLeast);
  const Vec<T> most = broadcast(E::kMost);
  Vec<T> x = argument < least ? least : argument;
  x = x > most ? most : x;
  const Vec<T> shifted = x * broadcast(kInverseLn2) + broadcast(kShift);
  const Vec<T> n = shifted - broadcast(kShift);
  const Vec<T> r = (x - n * broadcast(E::kHighLn2)) - n * broadcast(E::kLowLn2);
  Vec<T> series = broadcast(kInverseFactorials<T>.back());
#pragma GCC unroll 16
  for (int k = E::kTerms - 2; k >= 0; --k) {
    series = series * r + broadcast(kInverseFactorials<T>[static_cast<std::size_t>(k)]);
  }
  const BitsVec two_to_n = (std::bit_cast<BitsVec>(shifted) + E::kExponentBias) << E::kMantissaBits;
  return series * std::bit_cast<Vec<T>>(two_to_n);
}

/// Returns the sum of the lanes, added in order.
template <class T>
inline T sum_of_lanes(const Vec<T>& v) {
  T sum = 0;
  for (int lane = 0; lane < kLanes<T>; ++lane) {
    sum += v[lane];
  }
  return sum;
}

}  // namespace stagecoach::cpu
