#pragma once
/// @file
/// Images with one channel in each vector lane: [V, N, H', W', lanes]. Vector v holds channels v * kLanes and on; lanes
/// after the last channel are 0. (oneDNN calls this layout nChw16c.) A convolution reads it without a gather: whatever
/// its stride, the channels under a tap are contiguous.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/kernels/cpu/lanes.h"
#include "core/kernels/cpu/padded_images.h"
#include "core/kernels/cpu/position_tiles.h"
#include "core/kernels/cpu/tile.h"
#include "core/kernels/cpu/workspace.h"

namespace stagecoach::cpu {

/// Transposes one vector of the channels of images [samples, C, H, W] to lanes [samples, H', W', lanes] in `layout`.
template <class T>
void channels_to_lanes(const ImageLayout& layout, std::int64_t samples, std::int64_t vector, const T* images,
                       T* lanes) {
  ImageLayout one = layout;
  one.channels = 1;
  const std::int64_t channel = vector * kLanes<T>;
  for (std::int64_t n = 0; n < samples; ++n) {
    images_to_lanes(one, images + (n * layout.channels + channel) * layout.height * layout.width,
                    layout.channels - channel, lanes + n * layout.plane() * kLanes<T>);
  }
}

/// Returns the strides of images [samples, height, width, lanes].
template <class T>
Strides lane_strides(std::int64_t height, std::int64_t width) {
  return {height * width * kLanes<T>, width * kLanes<T>, kLanes<T>};
}

/// A copy of images [samples, C, H, W] with the channels in lanes.
template <class T>
class ChannelLanes {
 public:
  ChannelLanes(Device device, const ImageLayout& layout, std::int64_t samples, const T* images)
      : layout_(layout),
        samples_(samples),
        vector_size_(samples * layout.plane() * kLanes<T>),
        data_(device, groups_of<T>(layout.channels) * vector_size_) {
    for (std::int64_t v = 0; v < vectors(); ++v) {
      channels_to_lanes(layout, samples, v, images, data_.data() + v * vector_size_);
    }
  }
  std::int64_t samples() const { return samples_; }
  Strides strides() const { return lane_strides<T>(layout_.padded_height, layout_.padded_width); }
  std::int64_t vectors() const { return groups_of<T>(layout_.channels); }
  std::int64_t vector_size() const { return vector_size_; }  ///< elements
  /// Returns pixel [0, 0] of the first image, after the border.
  const T* origin(std::int64_t v) const {
    return data_.data() + v * vector_size_ + layout_.before * (layout_.padded_width + 1) * kLanes<T>;
  }

 private:
  ImageLayout layout_;
  std::int64_t samples_;
  std::int64_t vector_size_;
  Workspace<T> data_;
};

/// Sums [vectors, samples, plane, lanes].
template <class T>
struct LaneSums {
  T* data;
  int vectors;
  std::int64_t vector_size;
};

/// Computes images [samples, channels, plane] with the channels in lanes, and transposes them back. Each sum starts at
/// the bias [channels] of its channel, or at 0 if `bias` is null. add(v, sums) adds to a few vectors of channels, the
/// first of which is v.
template <class T, class Add>
void sum_in_channel_lanes(Device device, std::int64_t samples, std::int64_t channels, std::int64_t plane, const T* bias,
                          T* images, const Add& add) {
  constexpr std::int64_t kLane = kLanes<T>;
  const std::int64_t vector_size = samples * plane * kLane;
  const Parts vector_parts(groups_of<T>(channels), max_columns(kMaxRows));
  const Workspace<T> sums(device, max_columns(kMaxRows) * vector_size);
  for (std::int64_t part = 0; part < vector_parts.count; ++part) {
    const std::int64_t first = vector_parts.begin(part);
    const int vectors = vector_parts.size(part);
    for (int v = 0; v < vectors; ++v) {
      const std::int64_t channel = (first + v) * kLane;
      Vec<T> start{};
      if (bias != nullptr) {
        std::memcpy(&start, bias + channel, static_cast<std::size_t>(std::min(kLane, channels - channel)) * sizeof(T));
      }
      for (std::int64_t i = 0; i < vector_size; i += kLane) {
        store(start, sums.data() + v * vector_size + i);
      }
    }
    add(first, LaneSums<T>{sums.data(), vectors, vector_size});
    for (int v = 0; v < vectors; ++v) {
      const std::int64_t channel = (first + v) * kLane;
      for (std::int64_t n = 0; n < samples; ++n) {
        lanes_to_rows(sums.data() + v * vector_size + n * plane * kLane, channels - channel, plane,
                      images + (n * channels + channel) * plane, plane);
      }
    }
  }
}

}  // namespace stagecoach::cpu
