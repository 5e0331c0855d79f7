#pragma once
/// @file
/// The weight gradient of a convolution: for every weight [o, tap], the sum over all images and positions of grad_y[o]
/// times the input under the tap. Both are vectors of images (lanes.h), so a register tile multiplies vector by vector;
/// the lanes are summed only once, at the end.
///
/// The output gradients of a few rows fit into the first-level cache, so all taps are processed for these rows before
/// the next rows; in between, the sums are kept in memory.

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "core/kernels/cpu/conv2d.h"
#include "core/kernels/cpu/padded_images.h"
#include "core/kernels/cpu/tile.h"
#include "core/kernels/cpu/workspace.h"
#include "core/parallel_for.h"

namespace stagecoach::cpu {

struct DotShape {
  ConvShape conv;
  ImageLayout in;   ///< of x
  ImageLayout out;  ///< of grad_y
  std::int64_t groups;
  std::int64_t taps() const { return conv.channels * conv.window.kernel * conv.window.kernel; }
};

/// The arguments of one tile: rows of grad_y, combined with up to 8 taps whose inputs start at x + offset[c].
template <class T>
struct DotCall {
  std::int64_t rows;
  std::int64_t columns;
  const T* grads;
  std::int64_t grads_tile;  ///< from output r to r+1; positions are contiguous
  const T* x;
  const std::int64_t* offset;
  std::int64_t x_row;
  std::int64_t x_column;
  T* sums;  ///< [R, C] vectors, accumulated
  std::int64_t sums_row;
};

template <class T, int R, int C>
void run_dot_tile(const DotCall<T>& call) {
  constexpr std::int64_t kLane = kLanes<T>;
  Vec<T> sums[R][C];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      sums[r][c] = load(call.sums + r * call.sums_row + c * kLane);
    }
  }
  const T* grads = call.grads;
  for (std::int64_t row = 0; row < call.rows; ++row) {
    const T* x[C];
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      x[c] = call.x + row * call.x_row + call.offset[c];
    }
    std::int64_t at = 0;
    for (std::int64_t column = 0; column < call.columns; ++column) {
      Vec<T> values[C];
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) {
        values[c] = load(x[c] + at);
      }
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const Vec<T> grad = load(grads + r * call.grads_tile);
#pragma GCC unroll 8
        for (int c = 0; c < C; ++c) {
          sums[r][c] += grad * values[c];
        }
      }
      at += call.x_column;
      grads += kLane;
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      store(sums[r][c], call.sums + r * call.sums_row + c * kLane);
    }
  }
}

namespace detail {

template <class T, int R, int... C>
constexpr auto dot_tiles_of_row(std::integer_sequence<int, C...>) {
  std::array<void (*)(const DotCall<T>&), 8> tiles{};
  ((tiles[C] = &run_dot_tile<T, R, C + 1>), ...);
  return tiles;
}

template <class T, int... R>
constexpr auto all_dot_tiles(std::integer_sequence<int, R...>) {
  return std::array{dot_tiles_of_row<T, R + 1>(std::make_integer_sequence<int, max_columns(R + 1)>{})...};
}

}  // namespace detail

inline constexpr int kDotRows = kVectorRegisters >= 32 ? 4 : 3;

template <class T>
void run_dot_tile(int rows, int columns, const DotCall<T>& call) {
  static constexpr auto kTiles = detail::all_dot_tiles<T>(std::make_integer_sequence<int, kDotRows>{});
  kTiles[static_cast<std::size_t>(rows - 1)][static_cast<std::size_t>(columns - 1)](call);
}

/// Reduces lanes [count, kLanes] to the sum of each vector's lanes, added in the order of the lanes.
template <class T>
void sum_lanes(const T* lanes, std::int64_t count, T* out) {
  constexpr std::int64_t kLane = kLanes<T>;
  for (std::int64_t i = 0; i < count; i += kLane) {
    const auto width = static_cast<int>(std::min(kLane, count - i));
    Vec<T> block[kLane] = {};
    for (int j = 0; j < width; ++j) {
      block[j] = load(lanes + (i + j) * kLane);
    }
    transpose<T>(block);
    Vec<T> sum = block[0];
#pragma GCC unroll 16
    for (int j = 1; j < kLane; ++j) {
      sum += block[j];
    }
    std::memcpy(out + i, &sum, static_cast<std::size_t>(width) * sizeof(T));
  }
}

/// The sums of one task: outputs o … o + height - 1 by taps first … first + count - 1.
struct DotTask {
  std::int64_t output;
  int height;
  std::int64_t first_tap;
  int taps;
};
inline constexpr int kTapsPerTask = 48;

/// Returns the start of the inputs of each tap (c, i, j), in lanes from the start of the first image.
template <class T>
std::array<std::int64_t, kTapsPerTask> tap_offsets(const DotShape& shape, const DotTask& task) {
  const std::int64_t k = shape.conv.window.kernel;
  std::array<std::int64_t, kTapsPerTask> offsets{};
  for (int t = 0; t < task.taps; ++t) {
    const std::int64_t tap = task.first_tap + t;
    const std::int64_t row = tap / (k * k) * shape.in.padded_height + tap / k % k;
    offsets[static_cast<std::size_t>(t)] = (row * shape.in.padded_width + tap % k) * kLanes<T>;
  }
  return offsets;
}

template <class T>
void run_dot_task(const DotShape& shape, const DotTask& task, const T* images, const T* grads, T* grad_weight) {
  constexpr int kLane = kLanes<T>;
  const std::int64_t rows = shape.conv.rows();
  const std::int64_t columns = shape.conv.columns();
  const auto offsets = tap_offsets<T>(shape, task);
  alignas(kVectorBytes) T sums[kDotRows * kTapsPerTask * kLane] = {};  // [height, taps, lanes]
  const Parts tap_parts(task.taps, max_columns(task.height));
  // Rows per pass: their gradients fill a third of a typical first-level cache.
  const std::int64_t rows_at_once = std::max<std::int64_t>(16384 / (task.height * columns * kVectorBytes), 1);
  DotCall<T> call{};
  call.columns = columns;
  call.grads_tile = shape.out.plane() * kLane;
  call.x_row = shape.conv.window.stride * shape.in.padded_width * kLane;
  call.x_column = shape.conv.window.stride * kLane;
  call.sums_row = task.taps * kLane;
  for (std::int64_t group = 0; group < shape.groups; ++group) {
    for (std::int64_t row = 0; row < rows; row += rows_at_once) {
      call.rows = std::min(rows_at_once, rows - row);
      call.grads = grads + ((group * shape.conv.outputs + task.output) * shape.out.plane() + row * columns) * kLane;
      call.x = images + group * shape.in.size() * kLane + row * call.x_row;
      for (std::int64_t t = 0; t < tap_parts.count; ++t) {
        call.offset = offsets.data() + tap_parts.begin(t);
        call.sums = sums + tap_parts.begin(t) * kLane;
        run_dot_tile<T>(task.height, tap_parts.size(t), call);
      }
    }
  }
  for (int r = 0; r < task.height; ++r) {
    sum_lanes(sums + r * task.taps * kLane, task.taps, grad_weight + (task.output + r) * shape.taps() + task.first_tap);
  }
}

/// Computes grad_weight [O, C, K, K] from images [G, C, H', W', lanes] and grads [G, O, P, Q, lanes].
template <class T>
void sum_over_positions(Device device, const DotShape& shape, const T* images, const T* grads, T* grad_weight) {
  const Parts outputs(shape.conv.outputs, kDotRows);
  const Parts taps(shape.taps(), kTapsPerTask);
  parallel_for(device, outputs.count * taps.count, [&](std::int64_t task) {
    const std::int64_t o = task / taps.count;
    const std::int64_t t = task % taps.count;
    run_dot_task(shape, {outputs.begin(o), outputs.size(o), taps.begin(t), taps.size(t)}, images, grads, grad_weight);
  });
}

}  // namespace stagecoach::cpu
