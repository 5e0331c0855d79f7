#pragma once
/// @file
/// The weight gradient of a convolution with many channels, to which blocks of images are added (wide_conv2d.h).

#include <algorithm>
#include <cstdint>

#include "core/kernels/cpu/channel_lanes.h"
#include "core/kernels/cpu/conv2d.h"
#include "core/kernels/cpu/lanes.h"
#include "core/kernels/cpu/position_tiles.h"
#include "core/kernels/cpu/tile.h"
#include "core/kernels/cpu/workspace.h"
#include "core/parallel_for.h"

namespace stagecoach::cpu {

/// Positions first … last - 1 along one dimension.
struct PositionRange {
  std::int64_t first;
  std::int64_t last;
  std::int64_t count() const { return last - first; }
};

/// Returns those of `range` at which `tap` is inside an input of this extent.
inline PositionRange positions_of_tap(const PositionRange& range, std::int64_t tap, std::int64_t extent,
                                      const Window& window) {
  const auto positions_before = [&](std::int64_t end) {  // those whose input under the tap is below `end`
    const std::int64_t span = end + window.padding - tap;
    return span > 0 ? (span + window.stride - 1) / window.stride : 0;
  };
  const std::int64_t first = std::max(range.first, positions_before(0));
  return {first, std::max(first, std::min(range.last, positions_before(extent)))};
}

/// The sums [V, C, K, K, lanes], with C rounded up to whole vectors.
template <class T>
class WeightSums {
 public:
  WeightSums(Device device, const ConvShape& s)
      : shape_(s),
        taps_(s.window.kernel * s.window.kernel),
        vector_size_(groups_of<T>(s.channels) * kLane * taps_ * kLane),
        sums_(device, groups_of<T>(s.outputs) * vector_size_) {
    std::fill_n(sums_.data(), groups_of<T>(s.outputs) * vector_size_, T(0));
  }

  /// Adds the products of vector `c` of the channels of `samples` images: x [samples, H, W, lanes] and grad_y
  /// [V, samples, P, Q, lanes].
  void add(std::int64_t samples, std::int64_t c, const T* x, const T* grad_y) {
    // This many positions are multiplied by all these channels and taps before the next positions.
    constexpr std::int64_t kPositions = 512;
    const std::int64_t images = std::max<std::int64_t>(kPositions / (shape_.rows() * shape_.columns()), 1);
    const std::int64_t rows = images > 1 ? shape_.rows() : std::max<std::int64_t>(kPositions / shape_.columns(), 1);
    const Parts vectors(groups_of<T>(shape_.outputs), max_columns(kMaxRows));
    for (std::int64_t part = 0; part < vectors.count; ++part) {
      for (std::int64_t n = 0; n < samples; n += images) {
        for (std::int64_t p = 0; p < shape_.rows(); p += rows) {
          add_positions({n, std::min(n + images, samples)}, {p, std::min(p + rows, shape_.rows())}, c,
                        vectors.begin(part), vectors.size(part), samples, x, grad_y);
        }
      }
    }
  }

  /// Writes the gradient [O, C, K, K].
  void write(Device device, T* grad_weight) const {
    const std::int64_t taps = shape_.channels * taps_;
    parallel_for(device, groups_of<T>(shape_.outputs), [&](std::int64_t v) {
      lanes_to_rows(sums_.data() + v * vector_size_, shape_.outputs - v * kLane, taps, grad_weight + v * kLane * taps,
                    taps);
    });
  }

 private:
  static constexpr std::int64_t kLane = kLanes<T>;

  /// Adds the products of these positions, as `add` does, for a few vectors of outputs, the first of which is v.
  void add_positions(const PositionRange& images, const PositionRange& rows, std::int64_t c, std::int64_t v,
                     int vectors, std::int64_t samples, const T* x, const T* grad_y) {
    const auto [k, stride, padding] = shape_.window;
    const Strides in = lane_strides<T>(shape_.height, shape_.width);
    const Strides out = lane_strides<T>(shape_.rows(), shape_.columns());
    const Parts channels(kLane, kMaxRows);
    TileCall<T> call{};
    call.x_steps = {out.image, out.row, out.column, samples * out.image};
    call.weight_steps = {in.image, stride * in.row, stride * in.column, 1};
    call.y_row = taps_ * kLane;
    call.y_column = vector_size_;
    call.add = true;
    for (std::int64_t part = 0; part < channels.count; ++part) {
      for (std::int64_t i = 0; i < k; ++i) {
        for (std::int64_t j = 0; j < k; ++j) {
          const PositionRange p = positions_of_tap(rows, i, shape_.height, shape_.window);
          const PositionRange q = positions_of_tap({0, shape_.columns()}, j, shape_.width, shape_.window);
          call.taps = {images.count(), p.count(), q.count()};
          call.x =
              grad_y + v * samples * out.image + images.first * out.image + p.first * out.row + q.first * out.column;
          call.weight = x + images.first * in.image + (p.first * stride + i - padding) * in.row +
                        (q.first * stride + j - padding) * in.column + channels.begin(part);
          call.y = sums_.data() + v * vector_size_ + ((c * kLane + channels.begin(part)) * taps_ + i * k + j) * kLane;
          run_tile<T>(channels.size(part), vectors, call);
        }
      }
    }
  }

  ConvShape shape_;
  std::int64_t taps_;
  std::int64_t vector_size_;
  Workspace<T> sums_;
};

}  // namespace stagecoach::cpu
