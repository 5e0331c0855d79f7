#pragma once
/// @file
/// Sums over all but dimension 1 of [N, C, S], a channel's values in parts of fixed size: blocks sum the parts, by CUB,
/// and a thread per channel adds them in order.

#include <algorithm>

#include "core/cuda/device_code.h"
#include "core/kernels/cuda/arguments.h"
#include "core/kernels/cuda/block_reduce.cuh"
#include "core/kernels/cuda/fast_divmod.cuh"
#include "core/kernels/cuda/product_plan.h"
#include "core/kernels/cuda/threads.cuh"

namespace stagecoach::cuda {

/// [N, C, …] viewed as [N, C, S].
struct ChannelExtents {
  explicit ChannelExtents(const Tensor& x)
      : samples(to_int(x.size(0))), channels(to_int(x.size(1))), plane(to_int(x.shape().product(2, x.dims()))) {
    to_int(x.numel());
  }
  int samples;   // N
  int channels;  // C
  int plane;     // S
};

/// Returns the number of parts into which the values of a channel are divided: each part is summed by a block, then the
/// parts are added in order.
inline int parts_of(const ChannelExtents& e, int blocks_per_sm) {
  constexpr long long kMinPart = 2048;  // values: eight per thread
  constexpr int kMaxParts = 128;
  const int max_blocks = blocks_per_sm * kTargetBlocks;
  const long long values = 1LL * e.samples * e.plane;
  const long long parts = std::min<long long>(max_blocks / std::max(e.channels, 1), values / kMinPart);
  return static_cast<int>(std::clamp<long long>(parts, 1, kMaxParts));
}

/// The layout of each channel's values in memory.
struct ChannelLayout {
  /// An SM runs `blocks_per_sm` blocks at once, to keep many loads in flight.
  ChannelLayout(const ChannelExtents& e, int blocks_per_sm)
      : channels(e.channels),
        values(e.samples * e.plane),
        parts(parts_of(e, blocks_per_sm)),
        part_size(((values + parts - 1) / parts + 3) / 4 * 4),
        plane(e.plane) {}
  int channels;
  int values;  // N S
  int parts;
  int part_size;     // whole vectors of 4; the last parts may be shorter
  FastDivmod plane;  // S
  __device__ int index(int channel, int value) const {
    const int n = plane.quotient(value);
    return (n * channels + channel) * plane.value() + plane.remainder(value, n);
  }
};

/// Each block sums one part of one channel, where sum_of_thread(layout, channel, begin, end) returns this thread's
/// share of the sum over values begin to end - 1. If the part is the whole channel, the block also finishes the sum.
template <class Sums, class SumOfThread, class Finish>
__global__ void sum_part(ChannelLayout layout, SumOfThread sum_of_thread, Finish finish, Sums* partial) {
  using Reduction = BlockReduction<Sums, kThreads>;
  STAGECOACH_SHARED(Reduction, reduction);
  const int channel = static_cast<int>(blockIdx.x) / layout.parts;
  const int begin = static_cast<int>(blockIdx.x) % layout.parts * layout.part_size;
  const int end = begin + layout.part_size < layout.values ? begin + layout.part_size : layout.values;
  const Sums sums = reduce_block(reduction, sum_of_thread(layout, channel, begin, end), Sum{});
  if (threadIdx.x == 0) {
    if (layout.parts == 1) {
      finish(channel, sums);
    } else {
      partial[blockIdx.x] = sums;
    }
  }
}

/// Each thread adds the parts of one channel, in order.
template <class Sums, class Finish>
__global__ void add_parts(ChannelLayout layout, Finish finish, const Sums* partial) {
  const auto channel = static_cast<int>(element());
  if (channel < layout.channels) {
    Sums sums{};
    for (int part = 0; part < layout.parts; ++part) {
      sums = sums + partial[channel * layout.parts + part];
    }
    finish(channel, sums);
  }
}

/// Calls finish(channel, sums) once per channel of x.
template <class T, class Sums, class SumOfThread, class Finish>
void sum_parts(const Tensor& x, const ChannelLayout& layout, const SumOfThread& sum_of_thread, const Finish& finish) {
  if (layout.channels == 0) {
    return;
  }
  const int blocks = layout.channels * layout.parts;
  Workspace<T> workspace(std::int64_t{1} * blocks * (sizeof(Sums) / sizeof(T)), x.device());
  auto* partial = reinterpret_cast<Sums*>(workspace.data());
  const cudaStream_t stream = compute_stream(x.device());
  launch(sum_part<Sums, SumOfThread, Finish>, static_cast<unsigned>(blocks), kThreads, 0, stream, layout, sum_of_thread,
         finish, partial);
  if (layout.parts > 1) {
    launch(add_parts<Sums, Finish>, blocks_for(layout.channels), kThreads, 0, stream, layout, finish, partial);
  }
}

/// Adds value(channel, index) over a thread's indices in x.
template <class Sums, class Value>
struct SumOfThread {
  Value value;
  __device__ Sums operator()(const ChannelLayout& layout, int channel, int begin, int end) const {
    Sums sums{};
    for (int v = begin + static_cast<int>(threadIdx.x); v < end; v += kThreads) {
      sums = sums + value(channel, layout.index(channel, v));
    }
    return sums;
  }
};

/// Calls finish(channel, sum) once per channel, where sum is that of value(channel, index) over the channel's indices
/// in x.
template <class T, class Sums = T, class Value, class Finish>
void sum_channels(const Tensor& x, const Value& value, const Finish& finish) {
  sum_parts<T, Sums>(x, ChannelLayout(ChannelExtents(x), 8), SumOfThread<Sums, Value>{value}, finish);
}

}  // namespace stagecoach::cuda
