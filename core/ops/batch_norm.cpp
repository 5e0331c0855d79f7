#include "core/ops.h"
#include "core/ops/record.h"

namespace stagecoach {
namespace {

class BatchNormNode final : public Node {
 public:
  BatchNormNode(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& mean,
                const Tensor& inverse_deviation, bool statistics_vary)
      : Node("batch_norm", {x, weight, bias}), statistics_vary_(statistics_vary) {
    save("input", x);
    save("weight", weight);
    save("mean", mean);
    save("inverse_deviation", inverse_deviation);
  }

  Gradients backward(const Tensor& grad, const Wanted& wanted) override {
    const Kernels& on = kernels(grad.device());
    const Tensor x = saved("input");
    const Tensor mean = saved("mean");
    const Tensor inverse_deviation = saved("inverse_deviation");
    Gradients gradients(3);
    if (wanted[1] || wanted[2] || statistics_vary_) {
      gradients[1] = empty_beside(grad, {x.size(1)});
      gradients[2] = empty_beside(grad, {x.size(1)});
      on.batch_norm_grad_weight(grad, x, mean, inverse_deviation, gradients[1], gradients[2]);
    }
    if (wanted[0]) {
      gradients[0] = empty_beside(grad, x.shape());
      if (statistics_vary_) {
        on.batch_norm_grad_input_of_batch(grad, x, mean, inverse_deviation, saved("weight"), gradients[1], gradients[2],
                                          gradients[0]);
      } else {
        on.batch_norm_grad_input(grad, inverse_deviation, saved("weight"), gradients[0]);
      }
    }
    return gradients;
  }

 private:
  bool statistics_vary_;
};

}  // namespace

Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor running_mean,
                  Tensor running_variance, const BatchNormSettings& settings) {
  const Span span("batch_norm", "forward");
  STAGECOACH_CHECK(x.dims() == 2 || x.dims() == 4, "batch_norm: input {} is not [N, C] or [N, C, H, W]", describe(x));
  STAGECOACH_CHECK(x.size(1) > 0, "batch_norm: input {} has no channels", describe(x));
  const Shape channels{x.size(1)};
  for (const Tensor* each :
       {&weight, &bias, static_cast<const Tensor*>(&running_mean), static_cast<const Tensor*>(&running_variance)}) {
    STAGECOACH_CHECK(each->defined() && each->shape() == channels, "batch_norm: {} does not fit input {}",
                     describe(*each), describe(x));
    check_beside("batch_norm", x, *each);
  }
  const Kernels& on = kernels(x.device());
  Tensor mean = running_mean;
  Tensor variance = running_variance;
  if (settings.training) {
    const std::int64_t count = x.numel() / x.size(1);
    STAGECOACH_CHECK(count > 1, "batch_norm: training needs more than one value a channel, input is {}", describe(x));
    mean = empty_beside(x, channels);
    variance = empty_beside(x, channels);
    on.batch_statistics(x, mean, variance);
    if (settings.update) {
      on.update_running_statistics(mean, variance, settings.momentum, count, running_mean, running_variance);
    }
  }
  Tensor inverse_deviation = empty_beside(x, channels);
  on.inverse_deviation(variance, settings.epsilon, inverse_deviation);
  Tensor y = empty_beside(x, x.shape());
  on.batch_norm(x, mean, inverse_deviation, weight, bias, y);
  if (should_record({&x, &weight, &bias})) {
    y.set_grad_node(std::make_shared<BatchNormNode>(x, weight, bias, mean, inverse_deviation, settings.training));
  }
  return y;
}

}  // namespace stagecoach
