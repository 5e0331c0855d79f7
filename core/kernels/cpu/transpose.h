#pragma once
/// @file
/// Transposes matrices, in blocks of vectors.

#include <algorithm>
#include <cstdint>

#include "core/kernels/cpu/vec.h"

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

}  // namespace stagecoach::cpu
