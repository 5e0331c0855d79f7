#pragma once
/// @file
/// The weight gradient of a convolution with many channels on small maps, such as the last layers of a residual
/// network.
///
/// dot_tile.h keeps a vector of sums for every weight and adds its lanes up at the end. Where a weight meets few
/// positions, that end costs more than the sums. Here lanes are input channels: for each tap of the window the gradient
/// is a matrix product, [O, D] times [D, C] over the D = N P Q positions, whose vectors are sums of different weights.

#include <algorithm>
#include <cstdint>

#include "core/kernels/cpu/conv2d.h"
#include "core/kernels/cpu/matrix_product.h"
#include "core/kernels/cpu/scratch.h"
#include "core/parallel_for.h"

namespace stagecoach::cpu {

/// Whether it pays. The answer depends on the layer alone, not on the batch.
inline bool has_wide_weight_gradient(const ConvShape& s) {
  return s.channels >= 64 && s.outputs >= 64 && s.rows() * s.columns() <= 64;
}

/// Some neighbouring channels: as many as a tile has columns. What belongs to them lies together, so that a tile runs
/// through memory without gaps.
struct Panel {
  std::int64_t first;
  std::int64_t width;
};

/// x [N, C, H, W] to the panel's channels last: [N, H, W, width].
template <class T>
void turn_panel(Device device, const ConvShape& s, const Panel& panel, const T* x, T* turned) {
  const std::int64_t plane = s.height * s.width;
  parallel_for(device, s.samples, [&](std::int64_t n) {
    const T* from = x + (n * s.channels + panel.first) * plane;
    T* to = turned + n * plane * panel.width;
    for (std::int64_t at = 0; at < plane; ++at) {
      for (std::int64_t c = 0; c < panel.width; ++c) {
        to[at * panel.width + c] = from[c * plane + at];
      }
    }
  });
}

/// What tap (i, j) of the window meets at each position: [N, H, W, width] to [N, P, Q, width], zero in the padding.
template <class T>
void inputs_of_tap(Device device, const ConvShape& s, const Panel& panel, std::int64_t i, std::int64_t j,
                   const T* turned, T* met) {
  parallel_for(device, s.samples, [&](std::int64_t n) {
    T* to = met + n * s.rows() * s.columns() * panel.width;
    for (std::int64_t p = 0; p < s.rows(); ++p) {
      const std::int64_t h = p * s.window.stride + i - s.window.padding;
      for (std::int64_t q = 0; q < s.columns(); ++q, to += panel.width) {
        const std::int64_t w = q * s.window.stride + j - s.window.padding;
        if (h >= 0 && h < s.height && w >= 0 && w < s.width) {
          std::copy_n(turned + ((n * s.height + h) * s.width + w) * panel.width, panel.width, to);
        } else {
          std::fill_n(to, panel.width, T(0));
        }
      }
    }
  });
}

/// grad_y [N, O, P, Q] to [O, N, P, Q].
template <class T>
void outputs_first(Device device, const ConvShape& s, const T* grad_y, T* turned) {
  const std::int64_t plane = s.rows() * s.columns();
  parallel_for(device, s.outputs, [&](std::int64_t o) {
    for (std::int64_t n = 0; n < s.samples; ++n) {
      std::copy_n(grad_y + (n * s.outputs + o) * plane, plane, turned + (o * s.samples + n) * plane);
    }
  });
}

/// grad_y [N, O, P, Q], x [N, C, H, W] to grad_weight [O, C, K, K].
template <class T>
void wide_weight_gradient(Device device, const ConvShape& s, const T* grad_y, const T* x, T* grad_weight) {
  constexpr std::int64_t kWidest = max_columns(kMaxRows) * kLanes<T>;
  const std::int64_t depth = s.samples * s.rows() * s.columns();
  const std::int64_t taps = s.window.kernel * s.window.kernel;
  Scratch<T> grads(device, s.outputs * depth);                          // [O, N, P, Q]
  Scratch<T> turned(device, s.samples * s.height * s.width * kWidest);  // [N, H, W, width]
  Scratch<T> met(device, depth * kWidest);                              // [N, P, Q, width]
  Scratch<T> sums(device, taps * s.outputs * kWidest);                  // [K, K, O, width]
  outputs_first(device, s, grad_y, grads.data());
  for (std::int64_t first = 0; first < s.channels; first += kWidest) {
    const Panel panel{first, std::min(kWidest, s.channels - first)};
    turn_panel(device, s, panel, x, turned.data());
    for (std::int64_t tap = 0; tap < taps; ++tap) {
      inputs_of_tap(device, s, panel, tap / s.window.kernel, tap % s.window.kernel, turned.data(), met.data());
      product<T>(device, s.outputs, depth, panel.width, grads.data(), depth, 1, met.data(),
                 sums.data() + tap * s.outputs * panel.width);
    }
    parallel_for(device, s.outputs, [&](std::int64_t o) {
      for (std::int64_t c = 0; c < panel.width; ++c) {
        for (std::int64_t tap = 0; tap < taps; ++tap) {
          grad_weight[(o * s.channels + panel.first + c) * taps + tap] =
              sums.data()[(tap * s.outputs + o) * panel.width + c];
        }
      }
    });
  }
}

}  // namespace stagecoach::cpu
