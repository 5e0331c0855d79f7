#pragma once
/// @file
/// Matrix products in register tiles (tile.h). Each sum is taken in the order of its index, whatever the tile.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/kernels/cpu/tile.h"
#include "core/kernels/cpu/workspace.h"
#include "core/parallel_for.h"

namespace stagecoach::cpu {

/// Calls body(row, height, column, width) for each tile of a result of `rows` x `columns` vectors. Tiles with the same
/// columns are consecutive, so the vectors that they share stay in the cache.
template <class Body>
void for_each_tile(Device device, std::int64_t rows, std::int64_t columns, const Body& body) {
  if (rows == 0 || columns == 0) {
    return;
  }
  const Parts row_parts(rows, kMaxRows);
  const Parts column_parts(columns, max_columns(row_parts.size(row_parts.count - 1)));
  parallel_for(device, row_parts.count * column_parts.count, [&](std::int64_t tile) {
    const std::int64_t r = tile % row_parts.count;
    const std::int64_t c = tile / row_parts.count;
    body(row_parts.begin(r), row_parts.size(r), column_parts.begin(c), column_parts.size(c));
  });
}

/// A factor of a matrix product whose vectors are contiguous in its rows: element [i, j] is at data + i * row + j.
template <class T>
struct Rows {
  T* data;
  std::int64_t row;
};

/// out[r, j] = sum over i < k of a[r, i] b[i, j], for r < rows and j < vectors * kLanes. Element [r, i] of `a` is
/// at a + r * a_row + i * a_step. With `add`, sums start at the values in `out`.
template <class T>
void multiply(Device device, std::int64_t rows, std::int64_t k, std::int64_t vectors, const T* a, std::int64_t a_row,
              std::int64_t a_step, Rows<const T> b, Rows<T> out, bool add = false) {
  for_each_tile(device, rows, vectors, [&](std::int64_t r, int height, std::int64_t j, int width) {
    TileCall<T> call{};
    call.taps = {1, 1, k};
    call.x = b.data + j * kLanes<T>;
    call.x_steps = {0, 0, b.row, kLanes<T>};
    call.weight = a + r * a_row;
    call.weight_steps = {0, 0, a_step, a_row};
    call.y = out.data + r * out.row + j * kLanes<T>;
    call.y_row = out.row;
    call.y_column = kLanes<T>;
    call.add = add;
    run_tile<T>(height, width, call);
  });
}

/// Computes the same product for any width. If the last vector is not full, it is computed from a copy of the last
/// columns of b, padded with zeros.
template <class T>
void product(Device device, std::int64_t rows, std::int64_t k, std::int64_t width, const T* a, std::int64_t a_row,
             std::int64_t a_step, const T* b, T* out) {
  const std::int64_t whole = width / kLanes<T>;
  const std::int64_t tail = width % kLanes<T>;
  if (whole > 0) {
    multiply<T>(device, rows, k, whole, a, a_row, a_step, {b, width}, {out, width});
  }
  if (tail == 0) {
    return;
  }
  const auto copy_tail = [tail](const T* from, T* to) {
    std::memcpy(to, from, static_cast<std::size_t>(tail) * sizeof(T));
  };
  Workspace<T> last_b(device, k * kLanes<T>);
  Workspace<T> last_out(device, rows * kLanes<T>);
  std::fill_n(last_b.data(), k * kLanes<T>, T(0));
  for (std::int64_t i = 0; i < k; ++i) {
    copy_tail(b + i * width + width - tail, last_b.data() + i * kLanes<T>);
  }
  multiply<T>(device, rows, k, 1, a, a_row, a_step, {last_b.data(), kLanes<T>}, {last_out.data(), kLanes<T>});
  for (std::int64_t r = 0; r < rows; ++r) {
    copy_tail(last_out.data() + r * kLanes<T>, out + r * width + width - tail);
  }
}

}  // namespace stagecoach::cpu
