#include <utility>

#include "core/ops.h"
#include "core/ops/output_shapes.h"
#include "core/ops/record.h"

namespace stagecoach {
namespace {

/// The statistics by which channels are normalised, and the number of values from which they were computed.
struct Statistics {
  Tensor mean;      // [C]
  Tensor variance;  // [C]
  std::int64_t count;
};

void require_a_spread(std::int64_t count, const Tensor& x) {
  STAGECOACH_CHECK(count > 1, "batch_norm: expected at least two values per channel in training, got {} in input {}",
                   count, describe(x));
}

Statistics statistics_of(const Tensor& x) {
  const std::int64_t count = x.numel() / x.size(1);
  require_a_spread(count, x);
  Statistics batch{empty_like(x, {x.size(1)}), empty_like(x, {x.size(1)}), count};
  kernels(x.device()).batch_statistics(x, batch.mean, batch.variance);
  return batch;
}

/// Returns the statistics of a batch of which x is one part. Takes two passes, as for a whole batch: the squared
/// deviations need the mean of the whole. A part without samples adds zeros.
Statistics shared_statistics_of(const Tensor& x, const std::function<void(Tensor&)>& sum_over_ranks) {
  const Kernels& on = kernels(x.device());
  const std::int64_t channels = x.size(1);
  Tensor sums = empty_like(x, {channels + 1});  // per channel, and last the number of values:
  Tensor number = sums.narrow(channels, 1);     // exact in float32 up to 2^24, then to 7 digits
  Tensor mean = sums.narrow(0, channels);
  on.channel_sums(x, mean);
  number.fill(static_cast<double>(x.numel() / channels));
  sum_over_ranks(sums);
  const auto count = static_cast<std::int64_t>(number.item());
  require_a_spread(count, x);
  const double share = 1 / static_cast<double>(count);
  on.scale(mean, share, mean);
  Tensor variance = empty_like(x, {channels});
  on.squared_deviations(x, mean, variance);
  sum_over_ranks(variance);
  on.scale(variance, share, variance);
  return {mean, variance, count};
}

const char* name_of(const BatchNormSettings& settings) {
  return settings.activation == Activation::relu ? "batch_norm_relu" : "batch_norm";
}

class BatchNormNode final : public Node {
 public:
  BatchNormNode(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& addend, const Tensor& y,
                const Statistics& statistics, const Tensor& rstd, const BatchNormSettings& settings)
      : Node(name_of(settings), {x, weight, bias, addend}),
        settings_(settings),
        count_(statistics.count),
        has_addend_(addend.defined()) {
    save("input", x);
    save("weight", weight);
    save("bias", bias);
    save("mean", statistics.mean);
    save("rstd", rstd);
    if (has_addend_ && settings.activation == Activation::relu) {
      save("output", y);
    }
  }

  Gradients backward(const Tensor& grad_y, const NeedsInputGrad& needs_input_grad) override {
    const Kernels& on = kernels(grad_y.device());
    const Tensor x = saved("input");
    const Tensor weight = saved("weight");
    const Tensor bias = saved("bias");
    const Tensor mean = saved("mean");
    const Tensor rstd = saved("rstd");
    const auto [grad, activation] =
        has_addend_ ? std::pair(grad_sum(grad_y), Activation::none) : std::pair(grad_y, settings_.activation);
    const bool statistics_vary = settings_.training;
    Gradients gradients(4);
    gradients[3] = grad;
    if (needs_input_grad[1] || needs_input_grad[2] || statistics_vary) {
      gradients[1] = empty_like(grad, {x.size(1)});
      gradients[2] = empty_like(grad, {x.size(1)});
      on.batch_norm_grad_weight(grad, x, mean, rstd, weight, bias, activation, gradients[1], gradients[2]);
    }
    if (needs_input_grad[0]) {
      gradients[0] = empty_like(grad, x.shape());
      if (statistics_vary) {
        const auto [weight_total, bias_total] = over_the_batch(gradients[1], gradients[2]);
        on.batch_norm_grad_input_of_batch(grad, x, mean, rstd, weight, bias, activation, weight_total, bias_total,
                                          count_, gradients[0]);
      } else {
        on.batch_norm_grad_input(grad, rstd, weight, gradients[0]);
      }
    }
    return gradients;
  }

 private:
  /// Returns the gradient of the sum with the addend, to which the activation was applied.
  Tensor grad_sum(const Tensor& grad_y) const {
    if (settings_.activation == Activation::none) {
      return grad_y;
    }
    Tensor grad = grad_y.is_donatable() ? grad_y : empty_like(grad_y, grad_y.shape());  // as for relu
    kernels(grad.device()).relu_grad(grad_y, saved("output"), grad);
    return grad;
  }

  /// Returns the sums of both gradients over all ranks that share the batch; the gradients themselves are unchanged.
  std::pair<Tensor, Tensor> over_the_batch(const Tensor& grad_weight, const Tensor& grad_bias) const {
    if (!settings_.sum_over_ranks) {
      return {grad_weight, grad_bias};
    }
    const std::int64_t channels = grad_weight.size(0);
    Tensor totals = empty_like(grad_weight, {2 * channels});
    Tensor weight_total = totals.narrow(0, channels);
    Tensor bias_total = totals.narrow(channels, channels);
    weight_total.copy_from(grad_weight);
    bias_total.copy_from(grad_bias);
    settings_.sum_over_ranks(totals);
    return {weight_total, bias_total};
  }

  BatchNormSettings settings_;
  std::int64_t count_;
  bool has_addend_;
};

}  // namespace

Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor running_mean,
                  Tensor running_variance, const BatchNormSettings& settings, const Tensor& addend) {
  if (settings.activation == Activation::relu && !settings.training && !addend.defined() &&
      should_record({&x, &weight, &bias})) {
    BatchNormSettings alone = settings;  // rare, so without kernels of its own
    alone.activation = Activation::none;
    return relu(batch_norm(x, weight, bias, running_mean, running_variance, alone));
  }
  const Span span(name_of(settings), "forward");
  STAGECOACH_CHECK(weight.defined() && weight.dims() == 1, "batch_norm: expected weight [C], got {}", describe(weight));
  const Shape shape = batch_norm_shape(x.shape(), weight.size(0));
  const Shape channels{x.size(1)};
  for (const Tensor* each :
       {&weight, &bias, static_cast<const Tensor*>(&running_mean), static_cast<const Tensor*>(&running_variance)}) {
    STAGECOACH_CHECK(each->defined() && each->shape() == channels,
                     "batch_norm: expected weight, bias and running statistics {} for input {}, got {}",
                     to_string(channels), describe(x), describe(*each));
    check_matches("batch_norm", x, *each);
  }
  STAGECOACH_CHECK(!addend.defined() || addend.shape() == shape, "batch_norm: expected addend {}, got {}",
                   to_string(shape), describe(addend));
  check_matches("batch_norm", x, addend);
  const Kernels& on = kernels(x.device());
  Statistics by{running_mean, running_variance, 0};
  if (settings.training) {
    by = settings.sum_over_ranks ? shared_statistics_of(x, settings.sum_over_ranks) : statistics_of(x);
    if (settings.update) {
      on.update_running_statistics(by.mean, by.variance, settings.momentum, by.count, running_mean, running_variance);
    }
  }
  Tensor rstd = empty_like(x, channels);
  on.rstd(by.variance, settings.epsilon, rstd);
  Tensor y = empty_like(x, shape);
  on.batch_norm(x, by.mean, rstd, weight, bias, addend, settings.activation, y);
  return recorded<BatchNormNode>(y, {&x, &weight, &bias, &addend}, x, weight, bias, addend, y, by, rstd, settings);
}

}  // namespace stagecoach
