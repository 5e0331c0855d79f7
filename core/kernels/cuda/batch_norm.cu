/// @file
/// Sums over all but dimension 1 of [N, C, S], by CUB, and batch norm, which needs them.

#include <algorithm>

#include "core/kernels/cuda/arguments.h"
#include "core/kernels/cuda/block_reduce.cuh"
#include "core/kernels/cuda/fast_divmod.cuh"
#include "core/kernels/cuda/product_plan.h"
#include "core/kernels/cuda/threads.cuh"
#include "core/kernels/cuda/vectorized.cuh"
#include "core/kernels/groups.h"

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
inline int parts_of(const ChannelExtents& e) {
  constexpr long long kMinPart = 2048;  // values: eight per thread
  constexpr int kMaxParts = 128;
  constexpr int kMaxBlocks = 8 * kTargetBlocks;  // an SM runs eight blocks at once, to keep many loads in flight
  const long long values = 1LL * e.samples * e.plane;
  const long long parts = std::min<long long>(kMaxBlocks / std::max(e.channels, 1), values / kMinPart);
  return static_cast<int>(std::clamp<long long>(parts, 1, kMaxParts));
}

/// The layout of each channel's values in memory.
struct ChannelLayout {
  explicit ChannelLayout(const ChannelExtents& e)
      : channels(e.channels), values(e.samples * e.plane), parts(parts_of(e)), plane(e.plane) {}
  int channels;
  int values;  // N S
  int parts;
  FastDivmod plane;  // S
  __device__ int index(int channel, int value) const {
    const int n = plane.quotient(value);
    return (n * channels + channel) * plane.value() + plane.remainder(value, n);
  }
};

/// Each block sums one part of one channel. If the part is the whole channel, the block also finishes the sum.
template <class Sums, class Value, class Finish>
__global__ void sum_part(ChannelLayout layout, Value value, Finish finish, Sums* partial) {
  using Reduction = BlockReduction<Sums, kThreads>;
  STAGECOACH_SHARED(Reduction, reduction);
  const int channel = static_cast<int>(blockIdx.x) / layout.parts;
  const int part = static_cast<int>(blockIdx.x) % layout.parts;
  const int size = (layout.values + layout.parts - 1) / layout.parts;
  const int end = (part + 1) * size < layout.values ? (part + 1) * size : layout.values;
  Sums sums{};
  for (int v = part * size + static_cast<int>(threadIdx.x); v < end; v += kThreads) {
    sums = sums + value(channel, layout.index(channel, v));
  }
  sums = reduce_block(reduction, sums, Sum{});
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

/// Calls finish(channel, sum) once per channel, where sum is that of value(channel, index) over the channel's indices
/// in x.
template <class T, class Sums = T, class Value, class Finish>
void sum_channels(const Tensor& x, const Value& value, const Finish& finish) {
  const ChannelLayout layout{ChannelExtents(x)};
  if (layout.channels == 0) {
    return;
  }
  const int blocks = layout.channels * layout.parts;
  Workspace<T> workspace(std::int64_t{1} * blocks * (sizeof(Sums) / sizeof(T)), x.device());
  auto* partial = reinterpret_cast<Sums*>(workspace.data());
  const cudaStream_t stream = compute_stream(x.device());
  launch(sum_part<Sums, Value, Finish>, static_cast<unsigned>(blocks), kThreads, 0, stream, layout, value, finish,
         partial);
  if (layout.parts > 1) {
    launch(add_parts<Sums, Finish>, blocks_for(layout.channels), kThreads, 0, stream, layout, finish, partial);
  }
}

template <class T>
void sum_values(const Tensor& x, Tensor& out, T divisor) {
  const T* from = x.data<T>();
  T* to = out.mutable_data<T>();
  sum_channels<T>(
      x, [from] __device__(int, int at) { return from[at]; },
      [to, divisor] __device__(int c, T sum) { to[c] = sum / divisor; });
}

// A second pass is needed: the mean of squares minus the square of the mean would lose all digits of a small variance.
template <class T>
void sum_squared_deviations(const Tensor& x, const Tensor& mean, Tensor& out, T divisor) {
  const T* from = x.data<T>();
  const T* means = mean.data<T>();
  T* to = out.mutable_data<T>();
  sum_channels<T>(
      x, [from, means] __device__(int c, int at) { return (from[at] - means[c]) * (from[at] - means[c]); },
      [to, divisor] __device__(int c, T sum) { to[c] = sum / divisor; });
}

template <class T>
void sum_batch_norm_gradients(const Tensor& grad_y, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                              Tensor& grad_weight, Tensor& grad_bias) {
  const T* grad = grad_y.data<T>();
  const T* from = x.data<T>();
  const T* means = mean.data<T>();
  const T* rstds = rstd.data<T>();
  T* weights = grad_weight.mutable_data<T>();
  T* biases = grad_bias.mutable_data<T>();
  sum_channels<T, TwoSums<T>>(
      x,
      [grad, from, means] __device__(int c, int at) {
        return TwoSums<T>{grad[at] * (from[at] - means[c]), grad[at]};
      },
      [rstds, weights, biases] __device__(int c, TwoSums<T> sums) {
        weights[c] = rstds[c] * sums.products;
        biases[c] = sums.values;
      });
}

// ---- Element by element

/// out = of_channel(c)(inputs…) for every element of [N, C, S], whose channel is c. A thread processes kWide adjacent
/// elements of one channel, and computes what depends only on the channel once for them. `plane` is in units of kWide
/// elements.
template <int kWide, class OfChannel, class T, class... Inputs>
__global__ void map_elements(int count, FastDivmod channels, FastDivmod plane, OfChannel of_channel, T* out,
                             const Inputs*... inputs) {
  const auto at = static_cast<int>(element());
  if (at < count) {
    const int row = plane.quotient(at);
    const auto function = of_channel(channels.remainder(row, channels.quotient(row)));
    reinterpret_cast<Vector<T, kWide>*>(out)[at] =
        map_vector<T, kWide>(function, reinterpret_cast<const Vector<T, kWide>*>(inputs)[at]...);
  }
}

template <class OfChannel, class T, class... Inputs>
void for_each_element(const Tensor& x, const OfChannel& of_channel, T* out, const Inputs*... inputs) {
  const ChannelExtents e(x);
  const auto body = [&]<int kWide>() {
    const int plane = e.plane / kWide;
    launch_elements(x.device(), map_elements<kWide, OfChannel, T, Inputs...>, e.samples * e.channels * plane,
                    FastDivmod(e.channels), FastDivmod(plane), of_channel, out, inputs...);
  };
  with_vector_width(e.plane, body, out, inputs...);
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
void normalise(const Tensor& x, const Tensor& mean, const Tensor& rstd, const Tensor& weight, const Tensor& bias,
               Tensor& y) {
  const T* means = mean.data<T>();
  const T* rstds = rstd.data<T>();
  const T* weights = weight.data<T>();
  const T* biases = bias.data<T>();
  const auto of_channel = [=] __device__(int c) -> Normalised<T> {
    return {means[c], rstds[c] * weights[c], biases[c]};
  };
  for_each_element(x, of_channel, y.mutable_data<T>(), x.data<T>());
}

template <class T>
void scale_gradient(const Tensor& grad_y, const Tensor& rstd, const Tensor& weight, Tensor& grad_x) {
  const T* rstds = rstd.data<T>();
  const T* weights = weight.data<T>();
  const auto of_channel = [=] __device__(int c) -> Scaled<T> { return {weights[c] * rstds[c]}; };
  for_each_element(grad_y, of_channel, grad_x.mutable_data<T>(), grad_y.data<T>());
}

template <class T>
void gradient_of_batch(const Tensor& grad_y, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                       const Tensor& weight, const Tensor& grad_weight, const Tensor& grad_bias, T count,
                       Tensor& grad_x) {
  const T* means = mean.data<T>();
  const T* rstds = rstd.data<T>();
  const T* weights = weight.data<T>();
  const T* weight_grads = grad_weight.data<T>();
  const T* bias_grads = grad_bias.data<T>();
  const auto of_channel = [=] __device__(int c) -> NormalisedGradient<T> {
    const T inverse = rstds[c];
    return {means[c], inverse, weights[c] * inverse, bias_grads[c] / count, weight_grads[c] / count};
  };
  for_each_element(x, of_channel, grad_x.mutable_data<T>(), grad_y.data<T>(), x.data<T>());
}

// ---- Channel by channel

/// Calls body(channel) for each channel.
template <class Body>
__global__ void visit_channels(int channels, Body body) {
  const auto channel = static_cast<int>(element());
  if (channel < channels) {
    body(channel);
  }
}

template <class Body>
void for_each_channel(const Tensor& of_channels, const Body& body) {
  launch_elements(of_channels.device(), visit_channels<Body>, to_int(of_channels.numel()), body);
}

template <class T>
void update_statistics(const Tensor& mean, const Tensor& variance, T share, T unbiased, Tensor& running_mean,
                       Tensor& running_variance) {
  const T* means = mean.data<T>();
  const T* variances = variance.data<T>();
  T* running_means = running_mean.mutable_data<T>();
  T* running_variances = running_variance.mutable_data<T>();
  for_each_channel(mean, [=] __device__(int c) {
    running_means[c] = (1 - share) * running_means[c] + share * means[c];
    running_variances[c] = (1 - share) * running_variances[c] + share * unbiased * variances[c];
  });
}

template <class T>
void reciprocal_deviation(const Tensor& variance, T epsilon, Tensor& out) {
  const T* from = variance.data<T>();
  T* to = out.mutable_data<T>();
  for_each_channel(variance, [=] __device__(int c) { to[c] = 1 / sqrt(from[c] + epsilon); });
}

// ---- The rows of the table

namespace {

void channel_sums(const Tensor& x, Tensor& out) {
  dispatch_floating(x.dtype(), "channel_sums", [&]<class T>() { sum_values<T>(x, out, 1); });
}

void batch_statistics(const Tensor& x, Tensor& mean, Tensor& variance) {
  dispatch_floating(x.dtype(), "batch_statistics", [&]<class T>() {
    const auto count = static_cast<T>(x.numel() / x.size(1));
    sum_values<T>(x, mean, count);
    sum_squared_deviations<T>(x, mean, variance, count);
  });
}

void squared_deviations(const Tensor& x, const Tensor& mean, Tensor& sums) {
  dispatch_floating(x.dtype(), "squared_deviations", [&]<class T>() { sum_squared_deviations<T>(x, mean, sums, 1); });
}

void update_running_statistics(const Tensor& mean, const Tensor& variance, double momentum, std::int64_t count,
                               Tensor& running_mean, Tensor& running_variance) {
  dispatch_floating(mean.dtype(), "update_running_statistics", [&]<class T>() {
    update_statistics<T>(mean, variance, static_cast<T>(momentum), static_cast<T>(count) / static_cast<T>(count - 1),
                         running_mean, running_variance);
  });
}

void rstd(const Tensor& variance, double epsilon, Tensor& out) {
  dispatch_floating(variance.dtype(), "rstd",
                    [&]<class T>() { reciprocal_deviation<T>(variance, static_cast<T>(epsilon), out); });
}

void batch_norm(const Tensor& x, const Tensor& mean, const Tensor& rstd, const Tensor& weight, const Tensor& bias,
                Tensor& y) {
  dispatch_floating(x.dtype(), "batch_norm", [&]<class T>() { normalise<T>(x, mean, rstd, weight, bias, y); });
}

void batch_norm_grad_weight(const Tensor& grad_y, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                            Tensor& grad_weight, Tensor& grad_bias) {
  dispatch_floating(x.dtype(), "batch_norm_grad_weight",
                    [&]<class T>() { sum_batch_norm_gradients<T>(grad_y, x, mean, rstd, grad_weight, grad_bias); });
}

void batch_norm_grad_input(const Tensor& grad_y, const Tensor& rstd, const Tensor& weight, Tensor& grad_x) {
  dispatch_floating(grad_y.dtype(), "batch_norm_grad_input",
                    [&]<class T>() { scale_gradient<T>(grad_y, rstd, weight, grad_x); });
}

void batch_norm_grad_input_of_batch(const Tensor& grad_y, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                                    const Tensor& weight, const Tensor& grad_weight, const Tensor& grad_bias,
                                    std::int64_t count, Tensor& grad_x) {
  dispatch_floating(x.dtype(), "batch_norm_grad_input_of_batch", [&]<class T>() {
    gradient_of_batch<T>(grad_y, x, mean, rstd, weight, grad_weight, grad_bias, static_cast<T>(count), grad_x);
  });
}

}  // namespace

void add_batch_norm(Kernels& table) {
  table.channel_sums = channel_sums;
  table.batch_statistics = batch_statistics;
  table.squared_deviations = squared_deviations;
  table.update_running_statistics = update_running_statistics;
  table.rstd = rstd;
  table.batch_norm = batch_norm;
  table.batch_norm_grad_weight = batch_norm_grad_weight;
  table.batch_norm_grad_input = batch_norm_grad_input;
  table.batch_norm_grad_input_of_batch = batch_norm_grad_input_of_batch;
}

}  // namespace stagecoach::cuda
