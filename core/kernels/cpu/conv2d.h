#pragma once
/// @file
/// Convolutions as plain loops, which read like the formula. The kernels (conv2d.cpp) put one image in each vector lane
/// (lanes.h) and cut the result into register tiles (tile.h). Layers with many channels have a channel in each lane
/// (wide_conv2d.h). Measured speeds: `docs/measurements/cpu_kernels.md`.
///
/// x [N, C, H, W], weight [O, C, K, K], bias [O] or null, y [N, O, P, Q].

#include <algorithm>
#include <cstdint>

#include "core/kernels/kernels.h"

namespace stagecoach::cpu {

struct ConvShape {
  std::int64_t samples;                                             ///< N
  std::int64_t channels;                                            ///< C
  std::int64_t height;                                              ///< H
  std::int64_t width;                                               ///< W
  std::int64_t outputs;                                             ///< O
  Window window;                                                    ///< K, stride, padding
  std::int64_t rows() const { return window.positions(height); }    ///< P
  std::int64_t columns() const { return window.positions(width); }  ///< Q
};

namespace plain {

/// Calls body(at_y, at_weight, at_x) for every product of the convolution: output [n, o, p, q] receives
/// weight [o, c, i, j] times input [n, c, h, w].
template <class Body>
void for_each_product(const ConvShape& s, const Body& body) {
  const std::int64_t k = s.window.kernel;
  for (std::int64_t n = 0; n < s.samples; ++n) {
    for (std::int64_t o = 0; o < s.outputs; ++o) {
      for (std::int64_t p = 0; p < s.rows(); ++p) {
        for (std::int64_t q = 0; q < s.columns(); ++q) {
          for (std::int64_t c = 0; c < s.channels; ++c) {
            for (std::int64_t i = 0; i < k; ++i) {
              for (std::int64_t j = 0; j < k; ++j) {
                const std::int64_t h = p * s.window.stride + i - s.window.padding;
                const std::int64_t w = q * s.window.stride + j - s.window.padding;
                if (h >= 0 && h < s.height && w >= 0 && w < s.width) {
                  body(((n * s.outputs + o) * s.rows() + p) * s.columns() + q, ((o * s.channels + c) * k + i) * k + j,
                       ((n * s.channels + c) * s.height + h) * s.width + w);
                }
              }
            }
          }
        }
      }
    }
  }
}

/// y[n, o, p, q] = bias[o] + sum over c, i, j of x[n, c, p stride + i - padding, q stride + j - padding]
/// weight[o, c, i, j]
template <class T>
void conv2d(const ConvShape& s, const T* x, const T* weight, const T* bias, T* y) {
  const std::int64_t plane = s.rows() * s.columns();
  for (std::int64_t at = 0; at < s.samples * s.outputs * plane; ++at) {
    y[at] = bias != nullptr ? bias[at / plane % s.outputs] : T(0);
  }
  for_each_product(
      s, [=](std::int64_t at_y, std::int64_t at_weight, std::int64_t at_x) { y[at_y] += x[at_x] * weight[at_weight]; });
}

/// Scatters the same products back to the inputs that they came from.
template <class T>
void conv2d_grad_input(const ConvShape& s, const T* grad_y, const T* weight, T* grad_x) {
  std::fill_n(grad_x, s.samples * s.channels * s.height * s.width, T(0));
  for_each_product(s, [=](std::int64_t at_y, std::int64_t at_weight, std::int64_t at_x) {
    grad_x[at_x] += grad_y[at_y] * weight[at_weight];
  });
}

/// Scatters the same products back to the weights that they used.
template <class T>
void conv2d_grad_weight(const ConvShape& s, const T* grad_y, const T* x, T* grad_weight) {
  std::fill_n(grad_weight, s.outputs * s.channels * s.window.kernel * s.window.kernel, T(0));
  for_each_product(s, [=](std::int64_t at_y, std::int64_t at_weight, std::int64_t at_x) {
    grad_weight[at_weight] += grad_y[at_y] * x[at_x];
  });
}

}  // namespace plain
}  // namespace stagecoach::cpu
