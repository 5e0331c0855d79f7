#pragma once
/// @file
/// Matrix products of linear layers as plain loops, which read like the formula. The kernels (linear.cpp) cut the
/// result into register tiles (tile.h). Measured speeds: see `docs/measurements/cpu_kernels.md`.
///
/// x [N, I], weight [O, I], bias [O] or null, y [N, O].

#include <cstdint>

namespace stagecoach::cpu {

struct LinearShape {
  std::int64_t samples;  ///< N
  std::int64_t inputs;   ///< I
  std::int64_t outputs;  ///< O
};

namespace plain {

/// y[n, o] = bias[o] + sum over i of x[n, i] weight[o, i]
template <class T>
void linear(const LinearShape& shape, const T* x, const T* weight, const T* bias, T* y) {
  for (std::int64_t n = 0; n < shape.samples; ++n) {
    for (std::int64_t o = 0; o < shape.outputs; ++o) {
      T sum = bias != nullptr ? bias[o] : T(0);
      for (std::int64_t i = 0; i < shape.inputs; ++i) {
        sum += x[n * shape.inputs + i] * weight[o * shape.inputs + i];
      }
      y[n * shape.outputs + o] = sum;
    }
  }
}

/// grad_x[n, i] = sum over o of grad_y[n, o] weight[o, i]
template <class T>
void linear_grad_input(const LinearShape& shape, const T* grad_y, const T* weight, T* grad_x) {
  for (std::int64_t n = 0; n < shape.samples; ++n) {
    for (std::int64_t i = 0; i < shape.inputs; ++i) {
      T sum = 0;
      for (std::int64_t o = 0; o < shape.outputs; ++o) {
        sum += grad_y[n * shape.outputs + o] * weight[o * shape.inputs + i];
      }
      grad_x[n * shape.inputs + i] = sum;
    }
  }
}

/// grad_weight[o, i] = sum over n of grad_y[n, o] x[n, i]
template <class T>
void linear_grad_weight(const LinearShape& shape, const T* grad_y, const T* x, T* grad_weight) {
  for (std::int64_t o = 0; o < shape.outputs; ++o) {
    for (std::int64_t i = 0; i < shape.inputs; ++i) {
      T sum = 0;
      for (std::int64_t n = 0; n < shape.samples; ++n) {
        sum += grad_y[n * shape.outputs + o] * x[n * shape.inputs + i];
      }
      grad_weight[o * shape.inputs + i] = sum;
    }
  }
}

}  // namespace plain
}  // namespace stagecoach::cpu
