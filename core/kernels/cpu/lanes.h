#pragma once
/// @file
/// A layout in which a vector holds the same element of many images. Many convolutions have few channels and odd
/// widths, but a batch has many images: one image per lane leaves no lane idle, and makes the innermost dimension of
/// every loop a whole vector. Tensors remain [N, …]; kernels transpose groups of kLanes images to [element, lane] on
/// input, and back on output.

#include <algorithm>
#include <cstdint>

#include "core/kernels/cpu/vec.h"

namespace stagecoach::cpu {

/// Returns the number of groups of kLanes rows that `rows` rows need.
template <class T>
std::int64_t groups_of(std::int64_t rows) {
  return (rows + kLanes<T> - 1) / kLanes<T>;
}

/// Transposes rows [count, length] (row i starts at from + i * stride) to lanes: place(j), called for each j in order,
/// returns the address for the vector of element j. Lanes from `count` on become 0.
template <class T, class Place>
void rows_to_lanes(const T* from, std::int64_t stride, std::int64_t count, std::int64_t length, Place&& place) {
  constexpr int kCount = kLanes<T>;
  for (std::int64_t j = 0; j < length; j += kCount) {
    const auto width = static_cast<int>(std::min<std::int64_t>(kCount, length - j));
    Vec<T> block[kCount] = {};
    if (width == kCount && count >= kCount) {
#pragma GCC unroll 16
      for (int i = 0; i < kCount; ++i) {
        block[i] = load(from + i * stride + j);
      }
    } else {
      for (int i = 0; i < std::min<std::int64_t>(kCount, count); ++i) {
        std::memcpy(&block[i], from + i * stride + j, static_cast<std::size_t>(width) * sizeof(T));
      }
    }
    transpose<T>(block);
    for (int i = 0; i < width; ++i) {
      store(block[i], place(j + i));
    }
  }
}

/// Transposes lanes [length, kLanes] back to the first `count` rows.
template <class T>
void lanes_to_rows(const T* from, std::int64_t count, std::int64_t length, T* to, std::int64_t stride) {
  constexpr int kCount = kLanes<T>;
  for (std::int64_t j = 0; j < length; j += kCount) {
    const auto width = static_cast<int>(std::min<std::int64_t>(kCount, length - j));
    Vec<T> block[kCount] = {};
    for (int i = 0; i < width; ++i) {
      block[i] = load(from + (j + i) * kCount);
    }
    transpose<T>(block);
    if (width == kCount && count >= kCount) {
#pragma GCC unroll 16
      for (int i = 0; i < kCount; ++i) {
        store(block[i], to + i * stride + j);
      }
    } else {
      for (int i = 0; i < std::min<std::int64_t>(kCount, count); ++i) {
        std::memcpy(to + i * stride + j, &block[i], static_cast<std::size_t>(width) * sizeof(T));
      }
    }
  }
}

}  // namespace stagecoach::cpu
