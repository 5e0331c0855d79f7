#pragma once
/// @file
/// The results of a convolution, divided into register tiles (tile.h) whose rows are positions. Taps that are outside
/// the image for all positions of a tile are left out: of a 3 x 3 convolution of a 4 x 4 image, that is up to 31%.

#include <algorithm>
#include <cstdint>

#include "core/kernels/cpu/tile.h"

namespace stagecoach::cpu {

/// Taps first … first + count - 1.
struct TapRange {
  std::int64_t first;
  std::int64_t count;
};

/// One dimension of a convolution: at position p, tap t multiplies the input at first + p * step + t, if that is within
/// 0 … extent - 1.
struct Axis {
  std::int64_t positions;
  std::int64_t taps;
  std::int64_t first;
  std::int64_t step;
  std::int64_t extent;

  /// Returns the taps that have an input at `position`.
  TapRange taps_at(std::int64_t position) const {
    const std::int64_t at = first + position * step;
    const std::int64_t begin = std::clamp<std::int64_t>(-at, 0, taps);
    return {begin, std::clamp<std::int64_t>(extent - at, begin, taps) - begin};
  }
};

/// The strides, in elements, from one image, row and column to the next.
struct Strides {
  std::int64_t image;
  std::int64_t row;
  std::int64_t column;
};

/// The positions of a tile: `in` is the offset of the input of tap [0, 0] at its first position, `out` that of the
/// result; `in_step` and `out_step` are the strides to the next position.
struct PositionTile {
  int height;
  TapRange rows;
  TapRange columns;
  std::int64_t in;
  std::int64_t in_step;
  std::int64_t out;
  std::int64_t out_step;
};

/// Calls body(tile) for tiles that cover the positions of `images` images. `in` are the strides of the input, `out`
/// those of the results of consecutive positions. If there are at least as many images as columns, a tile is the same
/// position of several images, and needs no tap that is outside; otherwise it is part of a row, and reads the border to
/// the left and right of the image.
template <class Body>
void for_each_position_tile(std::int64_t images, const Axis& rows, const Axis& columns, const Strides& in,
                            const Strides& out, const Body& body) {
  const Strides step{in.image, rows.step * in.row, columns.step * in.column};
  const std::int64_t first = rows.first * in.row + columns.first * in.column;
  const auto call = [&](std::int64_t n, std::int64_t p, std::int64_t q, int height, const TapRange& column_taps,
                        std::int64_t in_step, std::int64_t out_step) {
    body(PositionTile{height, rows.taps_at(p), column_taps, first + n * step.image + p * step.row + q * step.column,
                      in_step, n * out.image + p * out.row + q * out.column, out_step});
  };
  const bool same_position = images >= columns.positions;
  const Parts parts(same_position ? images : columns.positions, kMaxRows);
  for (std::int64_t p = 0; p < rows.positions; ++p) {
    for (std::int64_t i = 0; i < (same_position ? columns.positions : images); ++i) {
      for (std::int64_t part = 0; part < parts.count; ++part) {
        if (same_position) {
          call(parts.begin(part), p, i, parts.size(part), columns.taps_at(i), step.image, out.image);
        } else {
          call(i, p, parts.begin(part), parts.size(part), {0, columns.taps}, step.column, out.column);
        }
      }
    }
  }
}

}  // namespace stagecoach::cpu
