#pragma once
/// @file
/// The register tile: the inner loop that linear layers and convolutions share. It keeps R x C vectors of sums in
/// registers while it iterates over all products that contribute to them:
///
///     sum[r][c] += weight[r] * x[c]        one weight, broadcast; one vector of x
///
/// R + C loads feed R * C multiply-adds, so with 6 x 4 the arithmetic units, not the loads, limit the speed. The
/// iteration has three loops (channel, row, column of a convolution's kernel); a matrix product uses only the
/// innermost. Every sum is taken in the order of the iteration, so no result depends on how the work was divided.

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "core/kernels/cpu/vec.h"

namespace stagecoach::cpu {

/// Strides in elements: for each step of the iteration, and for each row or column of the tile.
struct Steps {
  std::int64_t channel = 0;
  std::int64_t row = 0;
  std::int64_t column = 0;
  std::int64_t tile = 0;  ///< weights: from sum r to r+1; x: from sum c to c+1
};

/// The lengths of the three loops.
struct Taps {
  std::int64_t channels = 1;
  std::int64_t rows = 1;
  std::int64_t columns = 1;
};

/// The arguments of one tile. `y` is the address of sum [0][0]; sums start at bias[r], or at 0 without bias.
template <class T>
struct TileCall {
  Taps taps;
  const T* x;
  Steps x_steps;
  const T* weight;
  Steps weight_steps;
  const T* bias;
  T* y;
  std::int64_t y_row;     ///< from sum r to r+1
  std::int64_t y_column;  ///< from sum c to c+1
  bool add = false;       ///< sums start at the values in `y`
};

/// Returns the number of columns for which R rows leave registers: R * C sums, C vectors of x, and one weight.
constexpr int max_columns(int rows) { return std::min((kVectorRegisters - 1) / (rows + 1), 8); }
inline constexpr int kMaxRows = kVectorRegisters >= 32 ? 8 : 6;

template <class T, int R, int C>
void run_tile(const TileCall<T>& call) {
  Vec<T> sums[R][C];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      sums[r][c] = call.add               ? load(call.y + r * call.y_row + c * call.y_column)
                   : call.bias != nullptr ? broadcast(call.bias[r])
                                          : Vec<T>{};
    }
  }
  const std::int64_t x_tile = call.x_steps.tile;
  const std::int64_t weight_tile = call.weight_steps.tile;
  for (std::int64_t channel = 0; channel < call.taps.channels; ++channel) {
    for (std::int64_t row = 0; row < call.taps.rows; ++row) {
      const T* x = call.x + channel * call.x_steps.channel + row * call.x_steps.row;
      const T* weight = call.weight + channel * call.weight_steps.channel + row * call.weight_steps.row;
      for (std::int64_t column = 0; column < call.taps.columns; ++column) {
        Vec<T> values[C];
#pragma GCC unroll 8
        for (int c = 0; c < C; ++c) {
          values[c] = load(x + c * x_tile);
        }
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const Vec<T> factor = broadcast(weight[r * weight_tile]);
#pragma GCC unroll 8
          for (int c = 0; c < C; ++c) {
            sums[r][c] += factor * values[c];
          }
        }
        x += call.x_steps.column;
        weight += call.weight_steps.column;
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      store(sums[r][c], call.y + r * call.y_row + c * call.y_column);
    }
  }
}

namespace detail {

template <class T, int R, int... C>
constexpr auto tiles_of_row(std::integer_sequence<int, C...>) {
  std::array<void (*)(const TileCall<T>&), 8> tiles{};
  ((tiles[C] = &run_tile<T, R, C + 1>), ...);
  return tiles;
}

template <class T, int... R>
constexpr auto all_tiles(std::integer_sequence<int, R...>) {
  return std::array{tiles_of_row<T, R + 1>(std::make_integer_sequence<int, max_columns(R + 1)>{})...};
}

}  // namespace detail

/// Runs the tile of `rows` x `columns` sums; rows is at most kMaxRows, columns at most max_columns(rows).
template <class T>
void run_tile(int rows, int columns, const TileCall<T>& call) {
  static constexpr auto kTiles = detail::all_tiles<T>(std::make_integer_sequence<int, kMaxRows>{});
  kTiles[static_cast<std::size_t>(rows - 1)][static_cast<std::size_t>(columns - 1)](call);
}

/// A length divided into as few parts of at most `largest` as possible, as equal as possible.
struct Parts {
  Parts(std::int64_t length, std::int64_t largest) : length(length), count((length + largest - 1) / largest) {}
  std::int64_t length;
  std::int64_t count;
  std::int64_t begin(std::int64_t part) const { return part * length / count; }
  int size(std::int64_t part) const { return static_cast<int>(begin(part + 1) - begin(part)); }
};

}  // namespace stagecoach::cpu
