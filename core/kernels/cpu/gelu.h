#pragma once
/// @file
/// GELU(x) = x Phi(x), where Phi is the distribution function of the standard normal distribution (Hendrycks and
/// Gimpel, "Gaussian error linear units", 2016). `plain` reads like the formulas; `fast` computes the tanh form for
/// vectors.

#include <cmath>
#include <numbers>

#include "core/kernels/cpu/vec_exp.h"
#include "core/kernels/settings.h"

namespace stagecoach::cpu {

// The tanh form is x (1 + tanh(u)) / 2, with u = kGeluFactor (x + kGeluCubic x^3).
inline constexpr double kGeluFactor = 0.79788456080286535588;  // sqrt(2 / pi)
inline constexpr double kGeluCubic = 0.044715;

namespace plain {

template <class T>
T gelu(T x, GeluForm form) {
  if (form == GeluForm::exact) {
    return x * (1 + std::erf(x / std::numbers::sqrt2_v<T>)) / 2;
  }
  return x * (1 + std::tanh(T(kGeluFactor) * (x + T(kGeluCubic) * x * x * x))) / 2;
}

/// Returns the derivative at x.
template <class T>
T gelu_grad(T x, GeluForm form) {
  if (form == GeluForm::exact) {
    const T density = std::exp(-x * x / 2) * std::numbers::inv_sqrtpi_v<T> / std::numbers::sqrt2_v<T>;
    return (1 + std::erf(x / std::numbers::sqrt2_v<T>)) / 2 + x * density;
  }
  const T t = std::tanh(T(kGeluFactor) * (x + T(kGeluCubic) * x * x * x));
  const T slope = T(kGeluFactor) * (1 + 3 * T(kGeluCubic) * x * x);  // of u
  return (1 + t) / 2 + x * (1 - t * t) / 2 * slope;
}

}  // namespace plain

namespace fast {

/// Returns (1 + tanh(u)) / 2, which is 1 / (1 + exp(-2 u)).
template <class T>
Vec<T> gelu_share(const Vec<T>& x) {
  const Vec<T> u = broadcast(T(kGeluFactor)) * (x + broadcast(T(kGeluCubic)) * x * x * x);
  return T(1) / (T(1) + exp<T>(T(-2) * u));
}

template <class T>
Vec<T> gelu(const Vec<T>& x) {
  return x * gelu_share<T>(x);
}

template <class T>
Vec<T> gelu_grad(const Vec<T>& x) {
  const Vec<T> share = gelu_share<T>(x);
  const Vec<T> slope = broadcast(T(2 * kGeluFactor)) * (T(1) + broadcast(T(3 * kGeluCubic)) * x * x);  // of 2 u
  return share + x * share * (T(1) - share) * slope;
}

}  // namespace fast
}  // namespace stagecoach::cpu
