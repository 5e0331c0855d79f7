#pragma once
/// @file
/// Transposes matrices, in blocks of vectors.

#include <algorithm>
#include <cstdint>

#include "core/kernels/cpu/vec.h"
#include "core/parallel_for.h"

namespace stagecoach::cpu {

/// Transposes from [height, width], rows `from_row` apart, to [width, height], rows `to_row` apart.
template <class T>
void transpose_block(std::int64_t height, std::int64_t width, const T* from, std::int64_t from_row, T* to,
                     std::int64_t to_row) {
  constexpr std::int64_t kCount = kLanes<T>;
  for (std::int64_t r = 0; r < height; r += kCount) {
    for (std::int64_t c = 0; c < width; c += kCount) {
      if (r + kCount <= height && c + kCount <= width) {
        Vec<T> block[kCount];
#pragma GCC unroll 16
        for (int i = 0; i < kCount; ++i) {
          block[i] = load(from + (r + i) * from_row + c);
        }
        transpose<T>(block);
#pragma GCC unroll 16
        for (int i = 0; i < kCount; ++i) {
          store(block[i], to + (c + i) * to_row + r);
        }
        continue;
      }
      for (std::int64_t i = r; i < std::min(r + kCount, height); ++i) {
        for (std::int64_t j = c; j < std::min(c + kCount, width); ++j) {
          to[j * to_row + i] = from[i * from_row + j];
        }
      }
    }
  }
}

/// Transposes from [rows, columns] to [columns, rows], in blocks that fill the cache lines that they touch.
template <class T>
void transpose_matrix(Device device, std::int64_t rows, std::int64_t columns, const T* from, T* to) {
  constexpr std::int64_t kBlock = std::max<std::int64_t>(kLanes<T>, 64 / sizeof(T));
  parallel_for(device, (columns + kBlock - 1) / kBlock, [&](std::int64_t block) {
    const std::int64_t c = block * kBlock;
    for (std::int64_t r = 0; r < rows; r += kBlock) {
      transpose_block(std::min(kBlock, rows - r), std::min(kBlock, columns - c), from + r * columns + c, columns,
                      to + c * rows + r, rows);
    }
  });
}

}  // namespace stagecoach::cpu
