#pragma once
/// @file
/// Images with a border of zeros, so that no inner loop checks for the border: groups of images in lanes (lanes.h), and
/// images in their original layout.

#include <algorithm>
#include <cstdint>

#include "core/kernels/cpu/lanes.h"
#include "core/kernels/cpu/phase.h"
#include "core/kernels/cpu/workspace.h"
#include "core/parallel_for.h"

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

/// images [images, height, width] with a border of zeros. With a stride, columns that consecutive windows access are
/// contiguous: all columns 0, stride, 2 stride …, then all 1, stride + 1 …. Images that need neither a border nor this
/// order are not copied.
template <class T>
class PaddedImages {
 public:
  PaddedImages(Device device, std::int64_t images, std::int64_t height, std::int64_t width, const Border& border,
               std::int64_t stride, const T* from)
      : stride_(stride),
        columns_((border.before + width + border.right + stride - 1) / stride),
        plane_((border.before + height + border.below) * this->width()),
        copy_(device, plane_ == height * width && stride == 1 ? 0 : images * plane_),
        data_(plane_ == height * width && stride == 1 ? from : copy_.data()) {
    if (data_ == from) {
      return;
    }
    parallel_for(device, images, [&](std::int64_t image) {
      T* to = copy_.data() + image * plane_;
      std::fill_n(to, plane_, T(0));
      for (std::int64_t row = 0; row < height; ++row) {
        const T* from_row = from + (image * height + row) * width;
        T* to_row = to + (border.before + row) * this->width();
        for (std::int64_t first = 0; first < std::min(stride, width); ++first) {
          T* next = to_row + column_offset(border.before + first);
          for (std::int64_t w = first; w < width; w += stride) {
            *next++ = from_row[w];
          }
        }
      }
    });
  }
  const T* data() const { return data_; }
  std::int64_t width() const { return stride_ * columns_; }
  std::int64_t plane() const { return plane_; }
  /// Returns the index of a column within its row, including the border.
  std::int64_t column_offset(std::int64_t column) const {
    return stride_ == 1 ? column : column % stride_ * columns_ + column / stride_;
  }

 private:
  std::int64_t stride_;
  std::int64_t columns_;  // columns with one remainder
  std::int64_t plane_;
  Workspace<T> copy_;
  const T* data_;
};

}  // namespace stagecoach::cpu
