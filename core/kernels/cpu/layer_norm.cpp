#include <cmath>

#include "core/kernels/cpu/channels.h"
#include "core/kernels/cpu/tables.h"
#include "core/kernels/groups.h"
#include "core/parallel_for.h"

namespace stagecoach::cpu {
namespace {

/// Returns the layout of rows [N, C] in which each row is a channel.
ChannelLayout rows_of(const Tensor& x) { return ChannelLayout({1, x.size(0), x.size(1)}); }

void layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon, Tensor& y, Tensor& mean,
                Tensor& rstd) {
  dispatch_floating(x.dtype(), "layer_norm", [&]<class T>() {
    const ChannelLayout rows = rows_of(x);
    const std::int64_t width = rows.plane;
    const T* in = x.data<T>();     // [N, C]
    T* out = y.mutable_data<T>();  // [N, C]
    const T* weights = weight.data<T>();
    const T* biases = bias.data<T>();
    T* means = mean.mutable_data<T>();
    T* inverses = rstd.mutable_data<T>();
    parallel_for(x.device(), rows.channels, [&](std::int64_t n) {
      const T m = sum_over_channel<T>(rows, n, [=](std::int64_t i) { return in[i]; }) / static_cast<T>(width);
      const T squares = sum_over_channel<T>(rows, n, [=](std::int64_t i) { return (in[i] - m) * (in[i] - m); });
      const T inverse = 1 / std::sqrt(squares / static_cast<T>(width) + static_cast<T>(epsilon));
      means[n] = m;
      inverses[n] = inverse;
      const T* from = in + n * width;
      T* to = out + n * width;
      for (std::int64_t c = 0; c < width; ++c) {
        to[c] = (from[c] - m) * inverse * weights[c] + biases[c];
      }
    });
  });
}

/// With xhat = (x - mean) rstd and g = grad_y weight: grad_x = rstd (g - mean(g) - xhat mean(g xhat)), over the row.
void layer_norm_grad_input(const Tensor& grad_y, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                           const Tensor& weight, Tensor& grad_x) {
  dispatch_floating(x.dtype(), "layer_norm_grad_input", [&]<class T>() {
    const ChannelLayout rows = rows_of(x);
    const std::int64_t width = rows.plane;
    const T* grad = grad_y.data<T>();   // [N, C]
    const T* in = x.data<T>();          // [N, C]
    T* out = grad_x.mutable_data<T>();  // [N, C]
    const T* weights = weight.data<T>();
    parallel_for(x.device(), rows.channels, [&, means = mean.data<T>(), inverses = rstd.data<T>()](std::int64_t n) {
      const std::int64_t start = n * width;
      const T m = means[n];
      const T inverse = inverses[n];
      const auto scaled_grad = [=](std::int64_t i) { return grad[i] * weights[i - start]; };
      const auto xhat = [=](std::int64_t i) { return (in[i] - m) * inverse; };
      const T mean_grad = sum_over_channel<T>(rows, n, scaled_grad) / static_cast<T>(width);
      const T mean_product = sum_over_channel<T>(rows, n, [=](std::int64_t i) { return scaled_grad(i) * xhat(i); }) /
                             static_cast<T>(width);
      for (std::int64_t i = start; i < start + width; ++i) {
        out[i] = inverse * (scaled_grad(i) - mean_grad - xhat(i) * mean_product);
      }
    });
  });
}

void layer_norm_grad_weight(const Tensor& grad_y, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                            Tensor& grad_weight, Tensor& grad_bias) {
  dispatch_floating(x.dtype(), "layer_norm_grad_weight", [&]<class T>() {
    const T* grad = grad_y.data<T>();  // [N, C]
    const T* in = x.data<T>();         // [N, C]
    const T* means = mean.data<T>();
    const T* inverses = rstd.data<T>();
    const auto grad_times_xhat = [=](std::int64_t n, std::int64_t i) {
      return grad[i] * ((in[i] - means[n]) * inverses[n]);
    };
    sum_columns<T>(x.device(), x.size(0), x.size(1), grad_times_xhat, grad_weight.mutable_data<T>());
    sum_columns<T>(
        x.device(), x.size(0), x.size(1), [=](std::int64_t, std::int64_t i) { return grad[i]; },
        grad_bias.mutable_data<T>());
  });
}

}  // namespace

void add_layer_norm(Tables& tables) {
  tables.add<&Kernels::layer_norm>("layer_norm", layer_norm);
  tables.add<&Kernels::layer_norm_grad_input>("layer_norm_grad_input", layer_norm_grad_input);
  tables.add<&Kernels::layer_norm_grad_weight>("layer_norm_grad_weight", layer_norm_grad_weight);
}

}  // namespace stagecoach::cpu
