#pragma once
/// @file
/// Expresses the input gradient of a strided convolution as a set of convolutions without a stride.

#include <algorithm>
#include <cstdint>

#include "core/kernels/cpu/conv2d.h"

namespace stagecoach::cpu {

/// One of the stride x stride interleaved grids that make up the input: positions first + stride * i, each of
/// which is multiplied by the kernel's taps tap, tap + stride, …
struct Phase {
  Phase(std::int64_t first, std::int64_t extent, const Window& window)
      : positions((extent - first + window.stride - 1) / window.stride),
        tap((first + window.padding) % window.stride),
        taps(tap < window.kernel ? (window.kernel - tap + window.stride - 1) / window.stride : 0),
        output((first + window.padding - tap) / window.stride) {}
  std::int64_t positions;
  std::int64_t tap;
  std::int64_t taps;
  std::int64_t output;  ///< the output to which position 0 contributes at `tap`; one less at each next tap
};

/// The width of the border of zeros around images.
struct Border {
  std::int64_t before = 0;  ///< above, and to the left
  std::int64_t below = 0;
  std::int64_t right = 0;
};

/// Returns the border of zeros around grad_y, so that inputs at the border can use outputs that do not exist as 0.
inline Border gradient_border(const ConvShape& s) {
  Border border;
  for (std::int64_t first = 0; first < s.window.stride; ++first) {
    const Phase rows(first, s.height, s.window);
    const Phase columns(first, s.width, s.window);
    border.before = std::max(border.before, rows.taps - 1 - rows.output);  // equal to that of the columns
    border.below = std::max(border.below, rows.positions + rows.output - s.rows());
    border.right = std::max(border.right, columns.positions + columns.output - s.columns());
  }
  return border;
}

}  // namespace stagecoach::cpu
