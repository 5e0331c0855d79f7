#pragma once
/// @file
/// Everything a device must be able to compute, as a table of functions. Each backend fills one table: a group of rows
/// in each of the files core/kernels/cpu/*.cpp and core/kernels/cuda/*.cu, which have equal names. The operations of
/// `core/ops.h` choose shapes, check them, record gradients, and call a row. Kernels know nothing of autograd.
///
/// Shapes are beside the arguments. Unless said otherwise all floating tensors of a call have one type, float32 or
/// float64, and outputs (the last arguments) are allocated by the caller and wholly overwritten.

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

struct Kernels {
  // ---- elementwise

  /// Any shape and dtype.
  void (*fill)(double value, Tensor& out);
  /// Any shape and dtype; between devices, or within one, where the two may overlap.
  void (*copy)(const Tensor& source, Tensor& out);
  /// float32 to float16 or back, as core/half.h says. Equal bytes on every device.
  void (*convert)(const Tensor& source, Tensor& out);
  // All arguments of the next ones have one shape.
  void (*add)(const Tensor& a, const Tensor& b, Tensor& out);
  /// sum += factor * x
  void (*add_scaled)(const Tensor& x, double factor, Tensor& sum);
  void (*scale)(const Tensor& x, double factor, Tensor& out);
  void (*relu)(const Tensor& x, Tensor& out);
  /// `y` is the result of relu.
  void (*relu_grad)(const Tensor& grad_y, const Tensor& y, Tensor& out);
  /// sum ([] float64) += x ([], any floating type): for sums over many steps.
  void (*accumulate)(const Tensor& x, Tensor& sum);
  /// Adds 1 to each of `counters` ([] int32).
  void (*increment)(std::span<Tensor> counters);

  // ---- linear: x [N, I], weight [O, I], bias [O] (may be undefined), y [N, O]

  void (*linear)(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& y);
  void (*linear_grad_input)(const Tensor& grad_y, const Tensor& weight, Tensor& grad_x);
  /// One of the two results may be undefined: it is not computed. The bytes of the other do not depend on that.
  void (*linear_grad_weight)(const Tensor& grad_y, const Tensor& x, Tensor& grad_weight, Tensor& grad_bias);

  // ---- conv2d: x [N, C, H, W], weight [O, C, K, K], bias [O] (may be undefined), y [N, O, P, Q]

  void (*conv2d)(const Tensor& x, const Tensor& weight, const Tensor& bias, const Window& window, Tensor& y);
  void (*conv2d_grad_input)(const Tensor& grad_y, const Tensor& weight, const Window& window, Tensor& grad_x);
  /// As linear_grad_weight.
  void (*conv2d_grad_weight)(const Tensor& grad_y, const Tensor& x, const Window& window, Tensor& grad_weight,
                             Tensor& grad_bias);

  // ---- pool: x [N, C, H, W]

  /// `argmax` [N, C, P, Q] int32 holds, for each output, the index of the largest input in its H x W plane (the first
  /// one among equals).
  void (*max_pool2d)(const Tensor& x, const Window& window, Tensor& y, Tensor& argmax);
  void (*max_pool2d_grad)(const Tensor& grad_y, const Tensor& argmax, const Window& window, Tensor& grad_x);
  /// y [N, C]
  void (*global_average_pool)(const Tensor& x, Tensor& y);
  void (*global_average_pool_grad)(const Tensor& grad_y, Tensor& grad_x);

  // ---- softmax: over the rows of x [N, C]; `y` is the forward's result

  void (*softmax)(const Tensor& x, Tensor& y);
  void (*softmax_grad)(const Tensor& grad_y, const Tensor& y, Tensor& grad_x);
  void (*log_softmax)(const Tensor& x, Tensor& y);
  void (*log_softmax_grad)(const Tensor& grad_y, const Tensor& y, Tensor& grad_x);

  // ---- losses: logits [N, C], labels [N] int32, loss [] (a scalar)

  /// loss = factor * sum over n of -log softmax(logits)[n, labels[n]]; probabilities = softmax(logits).
  void (*cross_entropy)(const Tensor& logits, const Tensor& labels, double factor, Tensor& loss, Tensor& probabilities);
  void (*cross_entropy_grad)(const Tensor& grad_loss, const Tensor& probabilities, const Tensor& labels, double factor,
                             Tensor& grad_logits);
  /// loss = factor * sum of (a - b)^2
  void (*squared_error)(const Tensor& a, const Tensor& b, double factor, Tensor& loss);
  /// The gradient towards `a`; that towards `b` is its negative.
  void (*squared_error_grad)(const Tensor& grad_loss, const Tensor& a, const Tensor& b, double factor, Tensor& grad_a);

  // ---- batch_norm: over all but dimension 1 of x [N, C, …]; the other tensors are [C]

  void (*channel_sums)(const Tensor& x, Tensor& out);
  /// Of the batch; the variance is divided by the count.
  void (*batch_statistics)(const Tensor& x, Tensor& mean, Tensor& variance);
  /// The sums of (x - mean)^2: a variance that is not yet divided, for a batch of which x is a part.
  void (*squared_deviations)(const Tensor& x, const Tensor& mean, Tensor& sums);
  /// running = (1 - momentum) * running + momentum * batch; the variance is made unbiased for `count` samples.
  void (*update_running_statistics)(const Tensor& mean, const Tensor& variance, double momentum, std::int64_t count,
                                    Tensor& running_mean, Tensor& running_variance);
  /// out = 1 / sqrt(variance + epsilon): the reciprocal of the standard deviation.
  void (*rstd)(const Tensor& variance, double epsilon, Tensor& out);
  /// y = (x - mean) * rstd * weight + bias
  void (*batch_norm)(const Tensor& x, const Tensor& mean, const Tensor& rstd, const Tensor& weight, const Tensor& bias,
                     Tensor& y);
  void (*batch_norm_grad_weight)(const Tensor& grad_y, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                                 Tensor& grad_weight, Tensor& grad_bias);
  /// When mean and variance are constants.
  void (*batch_norm_grad_input)(const Tensor& grad_y, const Tensor& rstd, const Tensor& weight, Tensor& grad_x);
  /// When they are those of the batch, so that gradient flows through them too; `grad_weight` and `grad_bias` are the
  /// results of batch_norm_grad_weight for the whole batch, which has `count` values per channel. Often x is all of it.
  void (*batch_norm_grad_input_of_batch)(const Tensor& grad_y, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                                         const Tensor& weight, const Tensor& grad_weight, const Tensor& grad_bias,
                                         std::int64_t count, Tensor& grad_x);

  // ---- optimizer_steps: in place on the parameters and their state, all parameters in one call

  /// State: the velocity, which begins with zeros; none when momentum is 0.
  void (*sgd_step)(std::span<ParameterUpdate> updates, const SgdSettings& settings);
  /// State: the first and the second moment, which begin with zeros.
  void (*adam_step)(std::span<ParameterUpdate> updates, const AdamSettings& settings);

  // ---- images

  /// images [N, 3, H, W] uint8 to (pixel / 255 - mean) / deviation, float32.
  void (*normalize)(const Tensor& images, const Normalization& normalization, Tensor& out);
  /// Adds to `count` ([] int32) how many rows of logits [N, C] are largest at their label.
  void (*count_correct)(const Tensor& logits, const Tensor& labels, Tensor& count);
};

/// The kernels of a device. Throws UsageError when this build has none for it.
const Kernels& kernels(Device device);

}  // namespace stagecoach
