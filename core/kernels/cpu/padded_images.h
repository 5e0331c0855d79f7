#pragma once
/// @file
/// Images in lanes (lanes.h) with a border of zeros, so that no inner loop checks for the border.

#include <algorithm>
#include <cstdint>

#include "core/kernels/cpu/lanes.h"

namespace stagecoach::cpu {

/// [C, before + H + after, before + W + after]
struct ImageLayout {
  ImageLayout(std::int64_t channels, std::int64_t height, std::int64_t width, std::int64_t before,
              std::int64_t after_height, std::int64_t after_width)
      : channels(channels),
        height(height),
        width(width),
        before(before),
        padded_height(before + height + after_height),
        padded_width(before + width + after_width) {}
  ImageLayout(std::int64_t channels, std::int64_t height, std::int64_t width, std::int64_t before, std::int64_t after)
      : ImageLayout(channels, height, width, before, after, after) {}

  std::int64_t channels;
  std::int64_t height;
  std::int64_t width;
  std::int64_t before;
  std::int64_t padded_height;
  std::int64_t padded_width;
  std::int64_t plane() const { return padded_height * padded_width; }
  std::int64_t size() const { return channels * plane(); }
};

/// Transposes images [count, C, H, W] (at most as many as a vector has lanes) to lanes in `layout`.
template <class T>
void images_to_lanes(const ImageLayout& layout, const T* images, std::int64_t count, T* lanes) {
  constexpr std::int64_t kLane = kLanes<T>;
  const std::int64_t length = layout.channels * layout.height * layout.width;
  if (layout.plane() == layout.height * layout.width) {
    rows_to_lanes(images, length, count, length, [=](std::int64_t j) { return lanes + j * kLane; });
    return;
  }
  std::fill_n(lanes, layout.size() * kLane, T(0));
  T* next = lanes + (layout.before * layout.padded_width + layout.before) * kLane;
  std::int64_t column = 0;
  std::int64_t row = 0;
  rows_to_lanes(images, length, count, length, [&](std::int64_t) {
    T* here = next;
    next += kLane;
    if (++column == layout.width) {
      column = 0;
      next += (layout.padded_width - layout.width) * kLane;
      if (++row == layout.height) {
        row = 0;
        next += (layout.padded_height - layout.height) * layout.padded_width * kLane;
      }
    }
    return here;
  });
}

}  // namespace stagecoach::cpu
