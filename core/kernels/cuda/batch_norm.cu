/// @file
/// Batch norm, and the sums over channels that it and the gradients of biases need.

#include <cmath>

#include "core/kernels/cuda/arguments.h"
#include "core/kernels/cuda/channel_sums.cuh"
#include "core/kernels/cuda/fast_divmod.cuh"
#include "core/kernels/cuda/threads.cuh"
#include "core/kernels/cuda/vectorized.cuh"
#include "core/kernels/groups.h"

namespace stagecoach::cuda {

template <class T>
void sum_values(const Tensor& x, Tensor& out) {
  const T* from = x.data<T>();
  T* to = out.mutable_data<T>();
  sum_channels<T>(
      x, [from] __device__(int, int at) { return from[at]; }, [to] __device__(int c, T sum) { to[c] = sum; });
}

template <class T>
void sum_squared_deviations(const Tensor& x, const Tensor& mean, Tensor& out) {
  const T* from = x.data<T>();
  const T* means = mean.data<T>();
  T* to = out.mutable_data<T>();
  sum_channels<T>(
      x, [from, means] __device__(int c, int at) { return (from[at] - means[c]) * (from[at] - means[c]); },
      [to] __device__(int c, T sum) { to[c] = sum; });
}

// ---- Mean and variance

/// The number and mean of some values, and the sum of their squared deviations from the mean. (The mean of squares
/// minus the square of the mean would lose all digits of a small variance.)
template <class T>
struct Moments {
  T count;
  T mean;
  T squares;
  /// Source: Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances",
  /// 1979.
  __device__ Moments operator+(const Moments& other) const {
    const T total = count + other.count;
    const T share = total > 0 ? other.count / total : T(0);
    const T difference = other.mean - mean;
    const T more = difference * (count * share);
    return {total, std::fma(difference, share, mean), std::fma(difference, more, squares + other.squares)};
  }
};

/// Returns the moments of the first `count` values (at least one).
template <class T, int kValues>
__device__ Moments<T> moments_of(const T (&values)[kValues], int count) {
  T sum = 0;
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    sum += i < count ? values[i] : T(0);
  }
  const T mean = sum / static_cast<T>(count);
  T squares = 0;
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    const T deviation = i < count ? values[i] - mean : T(0);
    squares = std::fma(deviation, deviation, squares);
  }
  return {static_cast<T>(count), mean, squares};
}

/// Computes the moments of a thread's values with one read: it holds a few vectors of 4 at a time in registers. They
/// are loaded kWide values at once, on which the result does not depend.
template <class T, int kWide>
struct MomentsOfThread {
  const T* x;
  __device__ Moments<T> operator()(const ChannelLayout& layout, int channel, int begin, int end) const {
    constexpr int kValues = 16;
    constexpr int kStride = 4 * kThreads;  // between the vectors of a thread
    Moments<T> moments{};
    for (int rest = end - begin - 4 * static_cast<int>(threadIdx.x); rest > 0; rest -= kValues / 4 * kStride) {
      alignas(Vector<T, kWide>) T values[kValues];
      int count = 0;
#pragma unroll
      for (int i = 0; i < kValues; i += kWide) {
        const int offset = i / 4 * kStride + i % 4;
        const bool inside = offset < rest;
        count += inside ? kWide : 0;
        const T* from = x + layout.index(channel, end - rest + (inside ? offset : 0));
        *reinterpret_cast<Vector<T, kWide>*>(values + i) = *reinterpret_cast<const Vector<T, kWide>*>(from);
      }
      moments = moments + moments_of(values, count);
    }
    return moments;
  }
};

template <class T>
void mean_and_variance(const Tensor& x, Tensor& mean, Tensor& variance) {
  const ChannelLayout layout(ChannelExtents(x), 4);
  const T* from = x.data<T>();
  T* means = mean.mutable_data<T>();
  T* variances = variance.mutable_data<T>();
  const auto finish = [means, variances] __device__(int c, const Moments<T>& moments) {
    means[c] = moments.mean;
    variances[c] = moments.squares / moments.count;
  };
  const auto body = [&]<int kWide>() { sum_parts<T, Moments<T>>(x, layout, MomentsOfThread<T, kWide>{from}, finish); };
  with_vector_width(ChannelExtents(x).plane, body, from);
}

// ---- Element by element

/// out = function_for(c)(inputs…) for every element of [N, C, S], whose channel is c. A thread processes kWide
/// adjacent elements of one channel, and computes what depends only on the channel once for them. `plane` is in units
/// of kWide elements.
template <int kWide, class FunctionFor, class T, class... Inputs>
__global__ void map_elements(int count, FastDivmod channels, FastDivmod plane, FunctionFor function_for, T* out,
                             const Inputs*... inputs) {
  const auto at = static_cast<int>(element());
  if (at < count) {
    const int row = plane.quotient(at);
    const auto function = function_for(channels.remainder(row, channels.quotient(row)));
    reinterpret_cast<Vector<T, kWide>*>(out)[at] =
        map_vector<T, kWide>(function, reinterpret_cast<const Vector<T, kWide>*>(inputs)[at]...);
  }
}

template <class FunctionFor, class T, class... Inputs>
void for_each_element(const Tensor& x, const FunctionFor& function_for, T* out, const Inputs*... inputs) {
  const ChannelExtents e(x);
  const auto body = [&]<int kWide>() {
    const int plane = e.plane / kWide;
    launch_elements(x.device(), map_elements<kWide, FunctionFor, T, Inputs...>, e.samples * e.channels * plane,
                    FastDivmod(e.channels), FastDivmod(plane), function_for, out, inputs...);
  };
  with_vector_width(e.plane, body, out, inputs...);
}

/// activation((x - mean) * factor + bias + addend). Products that are added say so (std::fma): a compiler that chooses
/// where to round once may choose another place for vectors than for single elements.
template <class T>
struct Normalised {
  T mean;
  T factor;
  T bias;
  bool relu;
  __device__ T operator()(T x) const { return activated(std::fma(x - mean, factor, bias)); }
  __device__ T operator()(T x, T addend) const { return activated(std::fma(x - mean, factor, bias) + addend); }
  // Written so that NaN propagates.
  __device__ T activated(T y) const { return relu && y < 0 ? T(0) : y; }
  /// Returns the gradient of what the activation was applied to, which is computed again rather than loaded.
  __device__ T before_activation(T grad_y, T x) const { return !relu || (*this)(x) > 0 ? grad_y : T(0); }
};

/// Returns the functions of channels.
template <class T>
struct ChannelNorm {
  ChannelNorm(const Tensor& mean, const Tensor& rstd, const Tensor& weight, const Tensor& bias, Activation activation)
      : mean(mean.data<T>()),
        rstd(rstd.data<T>()),
        weight(weight.data<T>()),
        bias(bias.data<T>()),
        relu(activation == Activation::relu) {}
  __device__ Normalised<T> operator()(int c) const { return {mean[c], rstd[c] * weight[c], bias[c], relu}; }
  const T* mean;
  const T* rstd;
  const T* weight;
  const T* bias;
  bool relu;
};

/// w / sd * (grad - mean(grad) - xhat * mean(grad * xhat)), with xhat = (x - mean) / sd
template <class T>
struct NormalisedGradient {
  Normalised<T> forward;
  T inverse;
  T mean_grad;
  T mean_product;
  __device__ T operator()(T grad_y, T x) const {
    const T normalised = (x - forward.mean) * inverse;
    return forward.factor * std::fma(-normalised, mean_product, forward.before_activation(grad_y, x) - mean_grad);
  }
};

template <class T>
void normalise(const Tensor& x, const ChannelNorm<T>& norm, const Tensor& addend, Tensor& y) {
  if (addend.defined()) {
    for_each_element(x, norm, y.mutable_data<T>(), x.data<T>(), addend.data<T>());
  } else {
    for_each_element(x, norm, y.mutable_data<T>(), x.data<T>());
  }
}

template <class T>
void sum_gradients(const Tensor& grad_y, const Tensor& x, const ChannelNorm<T>& norm, Tensor& grad_weight,
                   Tensor& grad_bias) {
  const T* grad = grad_y.data<T>();
  const T* from = x.data<T>();
  T* weights = grad_weight.mutable_data<T>();
  T* biases = grad_bias.mutable_data<T>();
  sum_channels<T, TwoSums<T>>(
      x,
      [grad, from, norm] __device__(int c, int at) {
        const T g = norm(c).before_activation(grad[at], from[at]);
        return TwoSums<T>{g * (from[at] - norm.mean[c]), g};
      },
      [norm, weights, biases] __device__(int c, TwoSums<T> sums) {
        weights[c] = norm.rstd[c] * sums.products;
        biases[c] = sums.values;
      });
}

template <class T>
void scale_gradient(const Tensor& grad_y, const Tensor& rstd, const Tensor& weight, Tensor& grad_x) {
  const T* rstds = rstd.data<T>();
  const T* weights = weight.data<T>();
  // The gradient of a linear function: the same without constants.
  const auto function_for = [=] __device__(int c) -> Normalised<T> { return {0, weights[c] * rstds[c], 0, false}; };
  for_each_element(grad_y, function_for, grad_x.mutable_data<T>(), grad_y.data<T>());
}

template <class T>
void gradient_of_batch(const Tensor& grad_y, const Tensor& x, const ChannelNorm<T>& norm, const Tensor& grad_weight,
                       const Tensor& grad_bias, T count, Tensor& grad_x) {
  const T* weight_grads = grad_weight.data<T>();
  const T* bias_grads = grad_bias.data<T>();
  const auto function_for = [=] __device__(int c) -> NormalisedGradient<T> {
    return {norm(c), norm.rstd[c], bias_grads[c] / count, weight_grads[c] / count};
  };
  for_each_element(x, function_for, grad_x.mutable_data<T>(), grad_y.data<T>(), x.data<T>());
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
void for_each_channel(const Tensor& channel_values, const Body& body) {
  launch_elements(channel_values.device(), visit_channels<Body>, to_int(channel_values.numel()), body);
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
  dispatch_floating(x.dtype(), "channel_sums", [&]<class T>() { sum_values<T>(x, out); });
}

void batch_statistics(const Tensor& x, Tensor& mean, Tensor& variance) {
  dispatch_floating(x.dtype(), "batch_statistics", [&]<class T>() { mean_and_variance<T>(x, mean, variance); });
}

void squared_deviations(const Tensor& x, const Tensor& mean, Tensor& sums) {
  dispatch_floating(x.dtype(), "squared_deviations", [&]<class T>() { sum_squared_deviations<T>(x, mean, sums); });
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
                const Tensor& addend, Activation activation, Tensor& y) {
  dispatch_floating(x.dtype(), "batch_norm", [&]<class T>() {
    normalise<T>(x, {mean, rstd, weight, bias, activation}, addend, y);
  });
}

void batch_norm_grad_weight(const Tensor& grad_y, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                            const Tensor& weight, const Tensor& bias, Activation activation, Tensor& grad_weight,
                            Tensor& grad_bias) {
  dispatch_floating(x.dtype(), "batch_norm_grad_weight", [&]<class T>() {
    sum_gradients<T>(grad_y, x, {mean, rstd, weight, bias, activation}, grad_weight, grad_bias);
  });
}

void batch_norm_grad_input(const Tensor& grad_y, const Tensor& rstd, const Tensor& weight, Tensor& grad_x) {
  dispatch_floating(grad_y.dtype(), "batch_norm_grad_input",
                    [&]<class T>() { scale_gradient<T>(grad_y, rstd, weight, grad_x); });
}

void batch_norm_grad_input_of_batch(const Tensor& grad_y, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                                    const Tensor& weight, const Tensor& bias, Activation activation,
                                    const Tensor& grad_weight, const Tensor& grad_bias, std::int64_t count,
                                    Tensor& grad_x) {
  dispatch_floating(x.dtype(), "batch_norm_grad_input_of_batch", [&]<class T>() {
    gradient_of_batch<T>(grad_y, x, {mean, rstd, weight, bias, activation}, grad_weight, grad_bias,
                         static_cast<T>(count), grad_x);
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
