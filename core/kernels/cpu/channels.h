#pragma once
/// @file
/// Sums over all but the channel dimension of [N, C, …]: bias gradients and batch norm.

#include <algorithm>
#include <cstdint>

#include "core/parallel_for.h"
#include "core/tensor.h"

namespace stagecoach::cpu {

/// [N, C, …] viewed as [N, C, S].
struct ChannelLayout {
  explicit ChannelLayout(const Shape& shape)
      : samples(shape[0]), channels(shape[1]), plane(shape.product(2, shape.dims())) {}
  std::int64_t samples;
  std::int64_t channels;
  std::int64_t plane;
  std::int64_t count() const { return samples * plane; }  ///< values per channel
  std::int64_t start(std::int64_t sample, std::int64_t channel) const { return (sample * channels + channel) * plane; }
};

/// Returns the sum of value(i) over the indices i of channel `c`, in a fixed order and in lanes that the compiler can
/// keep in one vector, so the result depends only on the shape.
template <class T, class Value>
T sum_over_channel(const ChannelLayout& layout, std::int64_t c, const Value& value) {
  constexpr int kLanes = 16;
  T lanes[kLanes] = {};
  T rest = 0;
  for (std::int64_t n = 0; n < layout.samples; ++n) {
    const std::int64_t start = layout.start(n, c);
    std::int64_t s = 0;
    for (; s + kLanes <= layout.plane; s += kLanes) {
      for (int lane = 0; lane < kLanes; ++lane) {
        lanes[lane] += value(start + s + lane);
      }
    }
    for (; s < layout.plane; ++s) {
      rest += value(start + s);
    }
  }
  for (const T lane : lanes) {
    rest += lane;
  }
  return rest;
}

/// Computes sums[c], the sum over n of value(n, n * width + c), for each column c of [rows, width]. The rows are added
/// in order, adjacent columns at once.
template <class T, class Value>
void sum_columns(Device device, std::int64_t rows, std::int64_t width, const Value& value, T* sums) {
  constexpr std::int64_t kColumns = 32;
  parallel_for(device, (width + kColumns - 1) / kColumns, [&](std::int64_t block) {
    const std::int64_t begin = block * kColumns;
    const std::int64_t count = std::min(kColumns, width - begin);
    T totals[kColumns] = {};
    for (std::int64_t n = 0; n < rows; ++n) {
      for (std::int64_t c = 0; c < count; ++c) {
        totals[c] += value(n, n * width + begin + c);
      }
    }
    std::copy_n(totals, count, sums + begin);
  });
}

/// out [C] = the sums over all but dimension 1 of x [N, C, …]: a row of the kernel table, and the bias gradient of
/// linear layers and convolutions.
void channel_sums(const Tensor& x, Tensor& out);

}  // namespace stagecoach::cpu
