/// @file
/// Channel by channel: sums over all but dimension 1 of [N, C, S], by CUB blocks, and batch norm, which needs them.

#include <algorithm>

#include "core/kernels/cuda/block_reduce.cuh"
#include "core/kernels/cuda/divisor.cuh"
#include "core/kernels/cuda/functions.h"
#include "core/kernels/cuda/neighbours.cuh"
#include "core/kernels/cuda/threads.cuh"

namespace stagecoach::cuda {

int ChannelExtents::parts() const {
  constexpr long long kSmallestPart = 2048;  // values: eight a thread
  constexpr int kMostParts = 128;
  constexpr int kWanted = 8 * kEnoughBlocks;  // a processor runs eight blocks at once, and memory wants many readers
  const long long values = 1LL * samples * plane;
  const long long wanted = std::min<long long>(kWanted / std::max(channels, 1), values / kSmallestPart);
  return static_cast<int>(std::clamp<long long>(wanted, 1, kMostParts));
}

/// Where the values of a channel lie.
struct ChannelWalk {
  explicit ChannelWalk(const ChannelExtents& e)
      : channels(e.channels), values(e.samples * e.plane), parts(e.parts()), plane(std::max(e.plane, 1)) {}
  int channels;
  int values;  // N S
  int parts;
  Divisor plane;  // S
  __device__ int place(int channel, int value) const {
    const int n = plane.quotient(value);
    return (n * channels + channel) * plane.value() + plane.remainder(value, n);
  }
};

/// A block sums one part of one channel. If that is the whole channel it is finished here.
template <class Sums, class Value, class Finish>
__global__ void sum_part(ChannelWalk walk, Value value, Finish finish, Sums* partial) {
  wait_for_earlier_kernels();
  using Reduction = BlockReduction<Sums, kThreads>;
  STAGECOACH_SHARED(Reduction, reduction);
  const int channel = static_cast<int>(blockIdx.x) / walk.parts;
  const int part = static_cast<int>(blockIdx.x) % walk.parts;
  const int size = (walk.values + walk.parts - 1) / walk.parts;
  const int end = (part + 1) * size < walk.values ? (part + 1) * size : walk.values;
  Sums sums{};
  for (int v = part * size + static_cast<int>(threadIdx.x); v < end; v += kThreads) {
    sums = sums + value(channel, walk.place(channel, v));
  }
  sums = reduce_block(reduction, sums, Sum{});
  if (threadIdx.x == 0) {
    if (walk.parts == 1) {
      finish(channel, sums);
    } else {
      partial[blockIdx.x] = sums;
    }
  }
}

/// A thread adds the parts of one channel, in their order.
template <class Sums, class Finish>
__global__ void add_parts(ChannelWalk walk, Finish finish, const Sums* partial) {
  wait_for_earlier_kernels();
  const auto channel = static_cast<int>(element());
  if (channel < walk.channels) {
    Sums sums{};
    for (int part = 0; part < walk.parts; ++part) {
      sums = sums + partial[channel * walk.parts + part];
    }
    finish(channel, sums);
  }
}

/// Calls finish(channel, the sum of value(channel, place) over its places) once a channel.
template <class Sums, class Value, class Finish>
void sum_channels(cudaStream_t stream, const ChannelExtents& e, const Value& value, const Finish& finish,
                  Sums* partial) {
  if (e.channels == 0) {
    return;
  }
  const ChannelWalk walk(e);
  launch(sum_part<Sums, Value, Finish>, static_cast<unsigned>(walk.channels * walk.parts), kThreads, 0, stream, walk,
         value, finish, partial);
  if (walk.parts > 1) {
    launch(add_parts<Sums, Finish>, blocks_for(walk.channels), kThreads, 0, stream, walk, finish, partial);
  }
}

template <class T>
void channel_sums(cudaStream_t stream, const ChannelExtents& e, const T* x, T* out, T* partial) {
  sum_channels(
      stream, e, [x] __device__(int, int at) { return x[at]; }, [out] __device__(int c, T sum) { out[c] = sum; },
      partial);
}

template <class T>
void channel_means(cudaStream_t stream, const ChannelExtents& e, const T* x, T* mean, T* partial) {
  const auto count = static_cast<T>(1LL * e.samples * e.plane);
  sum_channels(
      stream, e, [x] __device__(int, int at) { return x[at]; },
      [mean, count] __device__(int c, T sum) { mean[c] = sum / count; }, partial);
}

// A second pass: the mean of squares minus the square of the mean would lose every digit of a small variance.
template <class T>
void squared_deviations(cudaStream_t stream, const ChannelExtents& e, const T* x, const T* mean, T divisor, T* out,
                        T* partial) {
  sum_channels(
      stream, e, [x, mean] __device__(int c, int at) { return (x[at] - mean[c]) * (x[at] - mean[c]); },
      [out, divisor] __device__(int c, T sum) { out[c] = sum / divisor; }, partial);
}

/// Two sums that are made in one pass.
template <class T>
struct TwoSums {
  T products;
  T values;
  __device__ TwoSums operator+(const TwoSums& other) const {
    return {products + other.products, values + other.values};
  }
};

template <class T>
void batch_norm_grad_weight(cudaStream_t stream, const ChannelExtents& e, const T* grad_y, const T* x, const T* mean,
                            const T* inverse_deviation, T* grad_weight, T* grad_bias, T* partial) {
  sum_channels(
      stream, e,
      [grad_y, x, mean] __device__(int c, int at) {
        return TwoSums<T>{grad_y[at] * (x[at] - mean[c]), grad_y[at]};
      },
      [inverse_deviation, grad_weight, grad_bias] __device__(int c, TwoSums<T> sums) {
        grad_weight[c] = inverse_deviation[c] * sums.products;
        grad_bias[c] = sums.values;
      },
      reinterpret_cast<TwoSums<T>*>(partial));
}

// ---- Element by element

/// out = of_channel(c)(inputs…) for every element of [N, C, S], whose channel is c. A thread takes kWide neighbours,
/// all of one channel: what depends on the channel is worked out once for them. `plane` counts in kWide elements.
template <int kWide, class OfChannel, class T, class... Inputs>
__global__ void map_elements(int count, Divisor channels, Divisor plane, OfChannel of_channel, T* out,
                             const Inputs*... inputs) {
  wait_for_earlier_kernels();
  const auto at = static_cast<int>(element());
  if (at < count) {
    const int row = plane.quotient(at);
    const auto function = of_channel(channels.remainder(row, channels.quotient(row)));
    reinterpret_cast<Neighbours<T, kWide>*>(out)[at] =
        map_neighbours<T, kWide>(function, reinterpret_cast<const Neighbours<T, kWide>*>(inputs)[at]...);
  }
}

template <class OfChannel, class T, class... Inputs>
void for_each_element(cudaStream_t stream, const ChannelExtents& e, const OfChannel& of_channel, T* out,
                      const Inputs*... inputs) {
  const auto body = [&]<int kWide>() {
    const int plane = e.plane / kWide;
    const int count = e.samples * e.channels * plane;
    if (count > 0) {
      launch(map_elements<kWide, OfChannel, T, Inputs...>, blocks_for(count), kThreads, 0, stream, count,
             Divisor(e.channels), Divisor(plane), of_channel, out, inputs...);
    }
  };
  in_fours_or_ones(e.plane, body, out, inputs...);
}

template <class T>
struct Scaled {
  T factor;
  __device__ T operator()(T value) const { return factor * value; }
};

template <class T>
struct Normalised {
  T mean;
  T factor;
  T bias;
  __device__ T operator()(T x) const { return (x - mean) * factor + bias; }
};

/// w / sd * (grad - mean(grad) - xhat * mean(grad * xhat)), with xhat = (x - mean) / sd
template <class T>
struct NormalisedGradient {
  T mean;
  T inverse;
  T factor;
  T mean_grad;
  T mean_product;
  __device__ T operator()(T grad_y, T x) const {
    const T normalised = (x - mean) * inverse;
    return factor * (grad_y - mean_grad - normalised * mean_product);
  }
};

template <class T>
void batch_norm(cudaStream_t stream, const ChannelExtents& e, const T* x, const T* mean, const T* inverse_deviation,
                const T* weight, const T* bias, T* y) {
  const auto of_channel = [=] __device__(int c) -> Normalised<T> {
    return {mean[c], inverse_deviation[c] * weight[c], bias[c]};
  };
  for_each_element(stream, e, of_channel, y, x);
}

template <class T>
void batch_norm_grad_input(cudaStream_t stream, const ChannelExtents& e, const T* grad_y, const T* inverse_deviation,
                           const T* weight, T* grad_x) {
  const auto of_channel = [=] __device__(int c) -> Scaled<T> { return {weight[c] * inverse_deviation[c]}; };
  for_each_element(stream, e, of_channel, grad_x, grad_y);
}

template <class T>
void batch_norm_grad_input_of_batch(cudaStream_t stream, const ChannelExtents& e, const T* grad_y, const T* x,
                                    const T* mean, const T* inverse_deviation, const T* weight, const T* grad_weight,
                                    const T* grad_bias, T count, T* grad_x) {
  const auto of_channel = [=] __device__(int c) -> NormalisedGradient<T> {
    const T inverse = inverse_deviation[c];
    return {mean[c], inverse, weight[c] * inverse, grad_bias[c] / count, grad_weight[c] / count};
  };
  for_each_element(stream, e, of_channel, grad_x, grad_y, x);
}

// ---- Channel by channel

/// Calls body(channel) for each channel.
template <class Body>
__global__ void visit_channels(int channels, Body body) {
  wait_for_earlier_kernels();
  const auto channel = static_cast<int>(element());
  if (channel < channels) {
    body(channel);
  }
}

template <class Body>
void for_each_channel(cudaStream_t stream, int channels, const Body& body) {
  if (channels > 0) {
    launch(visit_channels<Body>, blocks_for(channels), kThreads, 0, stream, channels, body);
  }
}

template <class T>
void update_running_statistics(cudaStream_t stream, int channels, const T* mean, const T* variance, T share, T unbiased,
                               T* running_mean, T* running_variance) {
  for_each_channel(stream, channels, [=] __device__(int c) {
    running_mean[c] = (1 - share) * running_mean[c] + share * mean[c];
    running_variance[c] = (1 - share) * running_variance[c] + share * unbiased * variance[c];
  });
}

template <class T>
void inverse_deviation(cudaStream_t stream, int channels, const T* variance, T epsilon, T* out) {
  for_each_channel(stream, channels, [=] __device__(int c) { out[c] = 1 / sqrt(variance[c] + epsilon); });
}

#define STAGECOACH_INSTANTIATE(T)                                                                                      \
  template void channel_sums<T>(cudaStream_t, const ChannelExtents&, const T*, T*, T*);                                \
  template void channel_means<T>(cudaStream_t, const ChannelExtents&, const T*, T*, T*);                               \
  template void squared_deviations<T>(cudaStream_t, const ChannelExtents&, const T*, const T*, T, T*, T*);             \
  template void update_running_statistics<T>(cudaStream_t, int, const T*, const T*, T, T, T*, T*);                     \
  template void inverse_deviation<T>(cudaStream_t, int, const T*, T, T*);                                              \
  template void batch_norm<T>(cudaStream_t, const ChannelExtents&, const T*, const T*, const T*, const T*, const T*,   \
                              T*);                                                                                     \
  template void batch_norm_grad_weight<T>(cudaStream_t, const ChannelExtents&, const T*, const T*, const T*, const T*, \
                                          T*, T*, T*);                                                                 \
  template void batch_norm_grad_input<T>(cudaStream_t, const ChannelExtents&, const T*, const T*, const T*, T*);       \
  template void batch_norm_grad_input_of_batch<T>(cudaStream_t, const ChannelExtents&, const T*, const T*, const T*,   \
                                                  const T*, const T*, const T*, const T*, T, T*);
STAGECOACH_INSTANTIATE(float)
STAGECOACH_INSTANTIATE(double)
#undef STAGECOACH_INSTANTIATE

}  // namespace stagecoach::cuda
