#pragma once
/// @file
/// The weight [O, C, K, K] of a convolution in the order in which a register tile reads it (wide_conv2d.h).

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/kernels/cpu/conv2d.h"
#include "core/kernels/cpu/lanes.h"
#include "core/kernels/cpu/vec.h"
#include "core/kernels/cpu/workspace.h"
#include "core/parallel_for.h"

namespace stagecoach::cpu {

/// The operation whose input channels are `from`, and whose result's channels are `to`.
enum class PackedFor {
  forward,     ///< from the channels to the outputs
  grad_input,  ///< from the outputs to the channels
};

/// The weight as [to V, from V, K, K, from lanes, to lanes]. Channels are rounded up to whole vectors with 0.
template <class T>
class PackedWeight {
 public:
  PackedWeight(Device device, const ConvShape& s, const T* weight, PackedFor use)
      : window_(s.window),
        gradient_(use == PackedFor::grad_input),
        from_vectors_(groups_of<T>(gradient_ ? s.outputs : s.channels)),
        data_(device, groups_of<T>(s.outputs) * groups_of<T>(s.channels) * block()) {
    std::vector<std::int64_t> offsets;  // of the taps, in their own order
    for (std::int64_t i = 0; i < s.window.kernel; ++i) {
      for (std::int64_t j = 0; j < s.window.kernel; ++j) {
        offsets.push_back(offset(i, j));
      }
    }
    const std::int64_t output_vectors = groups_of<T>(s.outputs);
    parallel_for(device, output_vectors * groups_of<T>(s.channels), [&](std::int64_t i) {
      const std::int64_t o = i % output_vectors;
      const std::int64_t c = i / output_vectors;
      pack(s, offsets, weight, o, c,
           data_.data() + (gradient_ ? c * from_vectors_ + o : o * from_vectors_ + c) * block());
    });
  }

  const T* vector(std::int64_t v) const { return data_.data() + v * from_vectors_ * block(); }
  std::int64_t vector_size() const { return from_vectors_ * block(); }  ///< elements, as are the strides:
  std::int64_t block() const { return window_.kernel * row(); }         ///< from a vector `from` to the next
  std::int64_t row() const { return window_.kernel * column(); }
  std::int64_t column() const { return kLanes<T> * kLanes<T>; }

  /// Returns the offset of a tap in its block.
  std::int64_t offset(std::int64_t row_tap, std::int64_t column_tap) const {
    return place(row_tap) * row() + place(column_tap) * column();
  }

 private:
  /// Returns the index at which row (or column) `tap` of the kernel is stored. In the gradient the order is reversed,
  /// as an output was made from the input `tap` after it; and the taps of a phase (phase.h) are contiguous.
  std::int64_t place(std::int64_t tap) const {
    if (!gradient_) {
      return tap;
    }
    const std::int64_t stride = window_.stride;
    std::int64_t end = 0;  // of the taps of this phase
    for (std::int64_t first = 0; first <= tap % stride; ++first) {
      end += (window_.kernel - first + stride - 1) / stride;
    }
    return end - 1 - tap / stride;
  }

  /// Packs one block: the taps between vector `o` of the outputs and vector `c` of the channels.
  void pack(const ConvShape& s, const std::vector<std::int64_t>& offsets, const T* weight, std::int64_t o,
            std::int64_t c, T* to) const {
    constexpr std::int64_t kLane = kLanes<T>;
    const auto taps = static_cast<std::int64_t>(offsets.size());
    const std::int64_t channels = std::min(kLane, s.channels - c * kLane);
    std::fill_n(to, block(), T(0));
    std::int64_t channel = 0;
    std::int64_t tap = 0;
    rows_to_lanes(weight + (o * s.channels + c) * kLane * taps, s.channels * taps, s.outputs - o * kLane,
                  channels * taps, [&](std::int64_t) {
                    T* at = to + offsets[static_cast<std::size_t>(tap)] + channel * kLane;
                    if (++tap == taps) {
                      tap = 0;
                      ++channel;
                    }
                    return at;
                  });
    if (!gradient_) {
      return;
    }
    for (std::int64_t i = 0; i < taps; ++i) {
      Vec<T> lanes[kLane];
      for (int lane = 0; lane < kLane; ++lane) {
        lanes[lane] = load(to + i * column() + lane * kLane);
      }
      transpose<T>(lanes);
      for (int lane = 0; lane < kLane; ++lane) {
        store(lanes[lane], to + i * column() + lane * kLane);
      }
    }
  }

  Window window_;
  bool gradient_;
  std::int64_t from_vectors_;
  Workspace<T> data_;
};

}  // namespace stagecoach::cpu
