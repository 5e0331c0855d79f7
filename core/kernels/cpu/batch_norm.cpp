#include <cmath>

#include "core/kernels/cpu/channels.h"
#include "core/kernels/cpu/tables.h"
#include "core/kernels/groups.h"
#include "core/parallel_for.h"

namespace stagecoach::cpu {
namespace {

/// Calls body(i) for every index of channel `c`, plane by plane.
template <class Body>
void for_each_in_channel(const ChannelLayout& layout, std::int64_t c, const Body& body) {
  for (std::int64_t n = 0; n < layout.samples; ++n) {
    const std::int64_t start = layout.start(n, c);
    for (std::int64_t i = start; i < start + layout.plane; ++i) {
      body(i);
    }
  }
}

/// Returns the sum of (x - mean)^2 over channel `c`. A second pass is needed: the mean of squares minus the square of
/// the mean would lose all digits of a small variance.
template <class T>
T squares_of_channel(const ChannelLayout& layout, std::int64_t c, const T* x, T mean) {
  return sum_over_channel<T>(layout, c, [=](std::int64_t i) { return (x[i] - mean) * (x[i] - mean); });
}

void batch_statistics(const Tensor& x, Tensor& mean, Tensor& variance) {
  dispatch_floating(x.dtype(), "batch_statistics", [&]<class T>() {
    const ChannelLayout layout(x.shape());
    const T* in = x.data<T>();  // [N, C, S]
    T* means = mean.mutable_data<T>();
    T* variances = variance.mutable_data<T>();
    const auto count = static_cast<T>(layout.count());
    parallel_for(x.device(), layout.channels, [&](std::int64_t c) {
      const T m = sum_over_channel<T>(layout, c, [=](std::int64_t i) { return in[i]; }) / count;
      means[c] = m;
      variances[c] = squares_of_channel(layout, c, in, m) / count;
    });
  });
}

void squared_deviations(const Tensor& x, const Tensor& mean, Tensor& sums) {
  dispatch_floating(x.dtype(), "squared_deviations", [&]<class T>() {
    const ChannelLayout layout(x.shape());
    const T* in = x.data<T>();  // [N, C, S]
    const T* means = mean.data<T>();
    T* out = sums.mutable_data<T>();
    parallel_for(x.device(), layout.channels,
                 [&](std::int64_t c) { out[c] = squares_of_channel(layout, c, in, means[c]); });
  });
}

void update_running_statistics(const Tensor& mean, const Tensor& variance, double momentum, std::int64_t count,
                               Tensor& running_mean, Tensor& running_variance) {
  dispatch_floating(mean.dtype(), "update_running_statistics", [&]<class T>() {
    const T* means = mean.data<T>();
    const T* variances = variance.data<T>();
    T* running_means = running_mean.mutable_data<T>();
    T* running_variances = running_variance.mutable_data<T>();
    const auto share = static_cast<T>(momentum);
    const auto unbiased = static_cast<T>(count) / static_cast<T>(count - 1);
    for (std::int64_t c = 0; c < mean.numel(); ++c) {
      running_means[c] = (1 - share) * running_means[c] + share * means[c];
      running_variances[c] = (1 - share) * running_variances[c] + share * unbiased * variances[c];
    }
  });
}

void rstd(const Tensor& variance, double epsilon, Tensor& out) {
  dispatch_floating(variance.dtype(), "rstd", [&]<class T>() {
    const T* in = variance.data<T>();
    T* to = out.mutable_data<T>();
    for (std::int64_t c = 0; c < variance.numel(); ++c) {
      to[c] = 1 / std::sqrt(in[c] + static_cast<T>(epsilon));
    }
  });
}

/// (x - mean) * rstd * weight + bias for a channel, and relu of it if kRelu.
template <class T, bool kRelu>
struct Normalised {
  T mean;
  T factor;
  T bias;
  T operator()(T x) const { return activated((x - mean) * factor + bias); }
  T operator()(T x, T addend) const { return activated((x - mean) * factor + bias + addend); }
  // Written so that NaN propagates.
  static T activated(T y) { return kRelu && y < 0 ? T(0) : y; }
  /// Returns the gradient of what the activation was applied to, which is computed again rather than loaded.
  T before_activation(T grad_y, T x) const { return !kRelu || (*this)(x) > 0 ? grad_y : T(0); }
};

/// Calls body(c, layout, normalised) for each channel c of x.
template <class T, class Body>
void for_each_norm(const Tensor& x, const Tensor& mean, const Tensor& rstd, const Tensor& weight, const Tensor& bias,
                   Activation activation, const Body& body) {
  const auto visit = [&, layout = ChannelLayout(x.shape()), means = mean.data<T>(), inverses = rstd.data<T>(),
                      weights = weight.data<T>(), biases = bias.data<T>()]<bool kRelu>() {
    parallel_for(x.device(), layout.channels, [&](std::int64_t c) {
      body(c, layout, Normalised<T, kRelu>{means[c], inverses[c] * weights[c], biases[c]});
    });
  };
  activation == Activation::relu ? visit.template operator()<true>() : visit.template operator()<false>();
}

void batch_norm(const Tensor& x, const Tensor& mean, const Tensor& rstd, const Tensor& weight, const Tensor& bias,
                const Tensor& addend, Activation activation, Tensor& y) {
  dispatch_floating(x.dtype(), "batch_norm", [&]<class T>() {
    const T* in = x.data<T>();                                       // [N, C, S]
    const T* added = addend.defined() ? addend.data<T>() : nullptr;  // [N, C, S]
    T* out = y.mutable_data<T>();                                    // [N, C, S]
    for_each_norm<T>(x, mean, rstd, weight, bias, activation,
                     [=](std::int64_t c, const ChannelLayout& layout, const auto& normalised) {
                       if (added != nullptr) {
                         for_each_in_channel(layout, c, [=](std::int64_t i) { out[i] = normalised(in[i], added[i]); });
                       } else {
                         for_each_in_channel(layout, c, [=](std::int64_t i) { out[i] = normalised(in[i]); });
                       }
                     });
  });
}

void batch_norm_grad_weight(const Tensor& grad_y, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                            const Tensor& weight, const Tensor& bias, Activation activation, Tensor& grad_weight,
                            Tensor& grad_bias) {
  dispatch_floating(x.dtype(), "batch_norm_grad_weight", [&]<class T>() {
    const T* in = x.data<T>();         // [N, C, S]
    const T* grad = grad_y.data<T>();  // [N, C, S]
    const T* inverses = rstd.data<T>();
    T* weights = grad_weight.mutable_data<T>();
    T* biases = grad_bias.mutable_data<T>();
    for_each_norm<T>(
        x, mean, rstd, weight, bias, activation,
        [=](std::int64_t c, const ChannelLayout& layout, const auto& normalised) {
          const auto gradient = [=](std::int64_t i) { return normalised.before_activation(grad[i], in[i]); };
          const T m = normalised.mean;
          weights[c] =
              inverses[c] * sum_over_channel<T>(layout, c, [=](std::int64_t i) { return gradient(i) * (in[i] - m); });
          biases[c] = sum_over_channel<T>(layout, c, gradient);
        });
  });
}

void batch_norm_grad_input(const Tensor& grad_y, const Tensor& rstd, const Tensor& weight, Tensor& grad_x) {
  dispatch_floating(grad_y.dtype(), "batch_norm_grad_input", [&]<class T>() {
    const ChannelLayout layout(grad_y.shape());
    const T* grad = grad_y.data<T>();   // [N, C, S]
    T* out = grad_x.mutable_data<T>();  // [N, C, S]
    const T* inverses = rstd.data<T>();
    const T* weights = weight.data<T>();
    parallel_for(grad_y.device(), layout.channels, [&](std::int64_t c) {
      const T factor = weights[c] * inverses[c];
      for_each_in_channel(layout, c, [=](std::int64_t i) { out[i] = factor * grad[i]; });
    });
  });
}

void batch_norm_grad_input_of_batch(const Tensor& grad_y, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                                    const Tensor& weight, const Tensor& bias, Activation activation,
                                    const Tensor& grad_weight, const Tensor& grad_bias, std::int64_t count,
                                    Tensor& grad_x) {
  dispatch_floating(x.dtype(), "batch_norm_grad_input_of_batch", [&]<class T>() {
    const T* in = x.data<T>();          // [N, C, S]
    const T* grad = grad_y.data<T>();   // [N, C, S]
    T* out = grad_x.mutable_data<T>();  // [N, C, S]
    const T* inverses = rstd.data<T>();
    const T* weight_grads = grad_weight.data<T>();
    const T* bias_grads = grad_bias.data<T>();
    for_each_norm<T>(x, mean, rstd, weight, bias, activation,
                     [=](std::int64_t c, const ChannelLayout& layout, const auto& normalised) {
                       // grad_x = w / sd * (grad - mean(grad) - xhat * mean(grad * xhat)), with xhat = (x - m) / sd
                       const T inverse = inverses[c];
                       const T mean_grad = bias_grads[c] / static_cast<T>(count);
                       const T mean_product = weight_grads[c] / static_cast<T>(count);
                       for_each_in_channel(layout, c, [=](std::int64_t i) {
                         out[i] = normalised.factor * (normalised.before_activation(grad[i], in[i]) - mean_grad -
                                                       (in[i] - normalised.mean) * inverse * mean_product);
                       });
                     });
  });
}

}  // namespace

void channel_sums(const Tensor& x, Tensor& out) {
  dispatch_floating(x.dtype(), "channel_sums", [&]<class T>() {
    const ChannelLayout layout(x.shape());
    const T* from = x.data<T>();  // [N, C, S]
    T* sums = out.mutable_data<T>();
    if (layout.plane == 1) {
      return sum_columns<T>(
          x.device(), layout.samples, layout.channels, [from](std::int64_t, std::int64_t i) { return from[i]; }, sums);
    }
    parallel_for(x.device(), layout.channels, [&](std::int64_t c) {
      sums[c] = sum_over_channel<T>(layout, c, [from](std::int64_t i) { return from[i]; });
    });
  });
}

void add_batch_norm(Tables& tables) {
  tables.add<&Kernels::channel_sums>("channel_sums", channel_sums);
  tables.add<&Kernels::batch_statistics>("batch_statistics", batch_statistics);
  tables.add<&Kernels::squared_deviations>("squared_deviations", squared_deviations);
  tables.add<&Kernels::update_running_statistics>("update_running_statistics", update_running_statistics);
  tables.add<&Kernels::rstd>("rstd", rstd);
  tables.add<&Kernels::batch_norm>("batch_norm", batch_norm);
  tables.add<&Kernels::batch_norm_grad_weight>("batch_norm_grad_weight", batch_norm_grad_weight);
  tables.add<&Kernels::batch_norm_grad_input>("batch_norm_grad_input", batch_norm_grad_input);
  tables.add<&Kernels::batch_norm_grad_input_of_batch>("batch_norm_grad_input_of_batch",
                                                       batch_norm_grad_input_of_batch);
}

}  // namespace stagecoach::cpu
