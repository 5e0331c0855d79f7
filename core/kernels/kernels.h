#pragma once
/// @file
/// Everything a device must be able to compute. Each backend fills in this one class; the operations of
/// `core/ops.h` choose shapes, check them, record gradients, and call it. Kernels know nothing of autograd.
///
/// Shapes stand beside the arguments. Unless said otherwise all floating tensors of a call have one type,
/// float32 or float64, and outputs (the last arguments) are allocated by the caller and wholly overwritten.

#include <cstdint>
#include <span>
#include <vector>

#include "core/kernels/settings.h"
#include "core/tensor.h"

namespace stagecoach {

/// One parameter of an optimizer step: its gradient, its value, and the optimizer's state for it, all of one shape.
struct ParameterUpdate {
  Tensor grad;
  Tensor parameter;
  std::vector<Tensor> state;
  Tensor count;  ///< [] int32: how often this parameter was updated, this time included
};

class Kernels {
 public:
  virtual ~Kernels() = default;

  // Any shape and dtype.
  virtual void fill(double value, Tensor& out) const = 0;
  /// Between devices, or within one, where the two may overlap.
  virtual void copy(const Tensor& source, Tensor& out) const = 0;
  /// float32 to float16 or back, as core/half.h says. Equal bytes on every device.
  virtual void convert(const Tensor& source, Tensor& out) const = 0;

  // Elementwise: all arguments have one shape.
  virtual void add(const Tensor& a, const Tensor& b, Tensor& out) const = 0;
  /// sum += factor * x
  virtual void add_scaled(const Tensor& x, double factor, Tensor& sum) const = 0;
  virtual void scale(const Tensor& x, double factor, Tensor& out) const = 0;
  /// sum ([] float64) += x ([], any floating type): for sums over many steps.
  virtual void accumulate(const Tensor& x, Tensor& sum) const = 0;
  /// Adds 1 to each of `counters` ([] int32).
  virtual void increment(std::span<Tensor> counters) const = 0;
  virtual void relu(const Tensor& x, Tensor& out) const = 0;
  /// `y` is what relu gave.
  virtual void relu_grad(const Tensor& grad_y, const Tensor& y, Tensor& out) const = 0;

  // Linear: x [N, I], weight [O, I], bias [O] (may be undefined), y [N, O].
  virtual void linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& y) const = 0;
  virtual void linear_grad_input(const Tensor& grad_y, const Tensor& weight, Tensor& grad_x) const = 0;
  virtual void linear_grad_weight(const Tensor& grad_y, const Tensor& x, Tensor& grad_weight) const = 0;

  // Convolution: x [N, C, H, W], weight [O, C, K, K], bias [O] (may be undefined), y [N, O, P, Q].
  virtual void conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Window& window,
                      Tensor& y) const = 0;
  virtual void conv2d_grad_input(const Tensor& grad_y, const Tensor& weight, const Window& window,
                                 Tensor& grad_x) const = 0;
  virtual void conv2d_grad_weight(const Tensor& grad_y, const Tensor& x, const Window& window,
                                  Tensor& grad_weight) const = 0;

  /// The bias gradient of both: x [N, C, …] summed over all but dimension 1, out [C].
  virtual void channel_sums(const Tensor& x, Tensor& out) const = 0;

  /// Weight and bias of a layer that has both. A result that nobody wants is undefined; the bytes of the other do not
  /// depend on that. Here one comes after the other; a device may have a way that reads grad_y once.
  virtual void linear_grad_weight_and_bias(const Tensor& grad_y, const Tensor& x, Tensor& grad_weight,
                                           Tensor& grad_bias) const;
  virtual void conv2d_grad_weight_and_bias(const Tensor& grad_y, const Tensor& x, const Window& window,
                                           Tensor& grad_weight, Tensor& grad_bias) const;

  // Pooling: x [N, C, H, W]. `picked` [N, C, P, Q] int32 holds, for each output, the place of the largest
  // input in its H x W plane (the first one among equals).
  virtual void max_pool2d(const Tensor& x, const Window& window, Tensor& y, Tensor& picked) const = 0;
  virtual void max_pool2d_grad(const Tensor& grad_y, const Tensor& picked, const Window& window,
                               Tensor& grad_x) const = 0;
  /// y [N, C]
  virtual void global_average_pool(const Tensor& x, Tensor& y) const = 0;
  virtual void global_average_pool_grad(const Tensor& grad_y, Tensor& grad_x) const = 0;

  // Over the rows of x [N, C]; `y` is the forward's result.
  virtual void softmax(const Tensor& x, Tensor& y) const = 0;
  virtual void softmax_grad(const Tensor& grad_y, const Tensor& y, Tensor& grad_x) const = 0;
  virtual void log_softmax(const Tensor& x, Tensor& y) const = 0;
  virtual void log_softmax_grad(const Tensor& grad_y, const Tensor& y, Tensor& grad_x) const = 0;

  // Losses: logits [N, C], labels [N] int32, loss [] (a scalar).
  /// loss = factor * sum over n of -log softmax(logits)[n, labels[n]]; also gives softmax(logits).
  virtual void cross_entropy(const Tensor& logits, const Tensor& labels, double factor, Tensor& loss,
                             Tensor& probabilities) const = 0;
  virtual void cross_entropy_grad(const Tensor& grad_loss, const Tensor& probabilities, const Tensor& labels,
                                  double factor, Tensor& grad_logits) const = 0;
  /// loss = factor * sum of (a - b)^2
  virtual void squared_error(const Tensor& a, const Tensor& b, double factor, Tensor& loss) const = 0;
  /// The gradient towards `a`; that towards `b` is its negative.
  virtual void squared_error_grad(const Tensor& grad_loss, const Tensor& a, const Tensor& b, double factor,
                                  Tensor& grad_a) const = 0;

  // Batch norm over all but dimension 1 of x [N, C, H, W] or [N, C]; the other tensors are [C].
  /// Of the batch; the variance divides by the count.
  virtual void batch_statistics(const Tensor& x, Tensor& mean, Tensor& variance) const = 0;
  /// The sums of (x - mean)^2: a variance that is not yet divided, for a batch of which x is a part.
  virtual void squared_deviations(const Tensor& x, const Tensor& mean, Tensor& sums) const = 0;
  /// running = (1 - momentum) * running + momentum * batch; the variance is made unbiased for `count` samples.
  virtual void update_running_statistics(const Tensor& mean, const Tensor& variance, double momentum,
                                         std::int64_t count, Tensor& running_mean, Tensor& running_variance) const = 0;
  /// out = 1 / sqrt(variance + epsilon)
  virtual void inverse_deviation(const Tensor& variance, double epsilon, Tensor& out) const = 0;
  /// y = (x - mean) * inverse_deviation * weight + bias
  virtual void batch_norm(const Tensor& x, const Tensor& mean, const Tensor& inverse_deviation, const Tensor& weight,
                          const Tensor& bias, Tensor& y) const = 0;
  virtual void batch_norm_grad_weight(const Tensor& grad_y, const Tensor& x, const Tensor& mean,
                                      const Tensor& inverse_deviation, Tensor& grad_weight,
                                      Tensor& grad_bias) const = 0;
  /// When mean and deviation are constants.
  virtual void batch_norm_grad_input(const Tensor& grad_y, const Tensor& inverse_deviation, const Tensor& weight,
                                     Tensor& grad_x) const = 0;
  /// When they are those of the batch, so that gradient flows through them too; `grad_weight` and `grad_bias` are what
  /// batch_norm_grad_weight gave for the whole batch, which has `count` values a channel. Often x is all of it.
  virtual void batch_norm_grad_input_of_batch(const Tensor& grad_y, const Tensor& x, const Tensor& mean,
                                              const Tensor& inverse_deviation, const Tensor& weight,
                                              const Tensor& grad_weight, const Tensor& grad_bias, std::int64_t count,
                                              Tensor& grad_x) const = 0;

  // Optimizer steps, in place on the parameters and their state: all parameters in one call.
  /// State: the velocity, which begins with zeros; none when momentum is 0.
  virtual void sgd_step(std::span<ParameterUpdate> updates, const SgdSettings& settings) const = 0;
  /// State: the first and the second moment, which begin with zeros.
  virtual void adam_step(std::span<ParameterUpdate> updates, const AdamSettings& settings) const = 0;

  // Pictures.
  /// images [N, 3, H, W] uint8 to (pixel / 255 - mean) / deviation, float32.
  virtual void normalize(const Tensor& images, const Normalization& normalization, Tensor& out) const = 0;
  /// Adds to `count` ([] int32) how many rows of scores [N, C] are largest at their label.
  virtual void count_correct(const Tensor& scores, const Tensor& labels, Tensor& count) const = 0;
};

/// The kernels of a device. Throws UsageError when this build has none for it.
const Kernels& kernels(Device device);

}  // namespace stagecoach
