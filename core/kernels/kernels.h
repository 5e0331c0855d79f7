#pragma once
/// @file
/// Everything that a device must be able to compute, as a table of functions. Each backend fills one table, one group
/// of rows per file: core/kernels/cpu/*.cpp and core/kernels/cuda/*.cu have corresponding names. The operations of
/// `core/ops.h` choose shapes, check them, record gradients, and call a row. Kernels are independent of autograd. They
/// take the addresses of their tensors on the thread that calls them.
///
/// Comments state the shapes of arguments. Unless stated otherwise, all floating-point tensors of a call have one type,
/// float32 or float64, and outputs (the last arguments) are allocated by the caller and entirely overwritten.

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
  Tensor count;        ///< [] int32: the number of updates of this parameter, including this one
  bool decays = true;  ///< whether weight decay applies
};

/// The rows: `Kernels` holds the functions that compute them, and `KernelCosts` (core/kernels/costs.h) what a call with
/// the same arguments costs.
template <class Result>
struct KernelTable {
  // ---- elementwise

  /// Fills a tensor of any shape and dtype.
  Result (*fill)(double value, Tensor& out);
  /// Copies a tensor of any shape and dtype, between devices or within one, where the two tensors may overlap.
  Result (*copy)(const Tensor& source, Tensor& out);
  /// Converts float32 to float16 or back, as defined in core/half.h. Every device produces the same bytes.
  Result (*convert)(const Tensor& source, Tensor& out);
  // All arguments of the functions from add to relu_grad have one shape.
  Result (*add)(const Tensor& a, const Tensor& b, Tensor& out);
  /// sum += factor * x
  Result (*add_scaled)(const Tensor& x, double factor, Tensor& sum);
  Result (*scale)(const Tensor& x, double factor, Tensor& out);
  Result (*relu)(const Tensor& x, Tensor& out);
  /// `y` is the result of relu.
  Result (*relu_grad)(const Tensor& grad_y, const Tensor& y, Tensor& out);
  Result (*gelu)(const Tensor& x, GeluForm form, Tensor& out);
  Result (*gelu_grad)(const Tensor& grad_y, const Tensor& x, GeluForm form, Tensor& out);
  /// sum ([] float64) += x ([], any floating-point type): for sums over many steps.
  Result (*accumulate)(const Tensor& x, Tensor& sum);
  /// Copies columns from … from+count-1 of `source` [R, S] to columns to … to+count-1 of `out` [R, D]; the other
  /// columns of `out` keep their elements.
  Result (*copy_columns)(const Tensor& source, std::int64_t from, std::int64_t to, std::int64_t count, Tensor& out);
  /// y = x / (1 - mask.probability) where the mask keeps an element, and 0 elsewhere: x [N, …]. The gradient is the
  /// same function of the gradient of y.
  Result (*dropout)(const Tensor& x, const DropoutMask& mask, Tensor& y);
  /// Adds 1 to each of `counters` ([] int32).
  Result (*increment)(std::span<Tensor> counters);

  // ---- linear: x [N, I], weight [O, I], bias [O] (may be undefined), y [N, O]

  Result (*linear)(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& y);
  Result (*linear_grad_input)(const Tensor& grad_y, const Tensor& weight, Tensor& grad_x);
  /// Either result may be undefined and is then not computed. The bytes of the other do not depend on that.
  Result (*linear_grad_weight)(const Tensor& grad_y, const Tensor& x, Tensor& grad_weight, Tensor& grad_bias);

  // ---- matmul

  /// out [B, M, N] = a [B, M, K] times b [B, K, N], for each of B pairs of matrices. A transposed factor is stored as
  /// [B, K, M] or [B, N, K].
  Result (*matmul)(const Tensor& a, const Tensor& b, const Transposed& transposed, Tensor& out);

  // ---- conv2d: x [N, C, H, W], weight [O, C, K, K], bias [O] (may be undefined), y [N, O, P, Q]

  Result (*conv2d)(const Tensor& x, const Tensor& weight, const Tensor& bias, const Window& window, Tensor& y);
  Result (*conv2d_grad_input)(const Tensor& grad_y, const Tensor& weight, const Window& window, Tensor& grad_x);
  /// Either result may be undefined, as for linear_grad_weight.
  Result (*conv2d_grad_weight)(const Tensor& grad_y, const Tensor& x, const Window& window, Tensor& grad_weight,
                               Tensor& grad_bias);

  // ---- pool: x [N, C, H, W]

  /// `argmax` [N, C, P, Q] int32 holds, for each output, the index of the largest input in its H x W plane (the first
  /// one among equals).
  Result (*max_pool2d)(const Tensor& x, const Window& window, Tensor& y, Tensor& argmax);
  Result (*max_pool2d_grad)(const Tensor& grad_y, const Tensor& argmax, const Window& window, Tensor& grad_x);
  /// y [N, C]
  Result (*global_average_pool)(const Tensor& x, Tensor& y);
  Result (*global_average_pool_grad)(const Tensor& grad_y, Tensor& grad_x);

  // ---- softmax: over the rows of x [N, C]; `y` is the forward's result

  Result (*softmax)(const Tensor& x, Tensor& y);
  Result (*softmax_grad)(const Tensor& grad_y, const Tensor& y, Tensor& grad_x);
  Result (*log_softmax)(const Tensor& x, Tensor& y);
  Result (*log_softmax_grad)(const Tensor& grad_y, const Tensor& y, Tensor& grad_x);

  // ---- attention: qkv [N, T, 3 W] holds the queries, keys and values of T tokens, each [N, T, W], side by side. Each
  // of `heads` equal parts of W is a head of its own. y [N, T, W]

  /// y = softmax(q k^T / sqrt(W / heads)) v, for every sample and head. What the mask hides is not computed, except for
  /// parts of tiles.
  Result (*attention)(const Tensor& qkv, std::int64_t heads, AttentionMask mask, Tensor& y);
  Result (*attention_grad)(const Tensor& grad_y, const Tensor& qkv, std::int64_t heads, AttentionMask mask,
                           Tensor& grad_qkv);

  // ---- attention_part: attention of queries q [N, S, W] to a part of the keys and values, kv [N, K, 2 W] side by
  // side. The mask causal hides from query t what follows key t + K - S. log_sums [N, heads, S]

  /// y [N, S, W] = softmax(q k^T / sqrt(W / heads)) v over these keys; log_sums = log(sum of exp(q k^T / sqrt(W /
  /// heads))).
  Result (*attention_part)(const Tensor& q, const Tensor& kv, std::int64_t heads, AttentionMask mask, Tensor& y,
                           Tensor& log_sums);
  /// Computes what these keys contribute to the gradients, given y and log_sums over all keys.
  Result (*attention_part_grad)(const Tensor& grad_y, const Tensor& y, const Tensor& q, const Tensor& kv,
                                const Tensor& log_sums, std::int64_t heads, AttentionMask mask, Tensor& grad_q,
                                Tensor& grad_kv);
  /// Merges attention to one part of the keys into that to others: y and log_sums become those over all of these keys.
  Result (*merge_attention)(const Tensor& part, const Tensor& part_log_sums, Tensor& y, Tensor& log_sums);

  // ---- tokens: x [N, T, C]

  /// y [N, C, T]
  Result (*transpose)(const Tensor& x, Tensor& y);
  /// y [N, T, C] = x + b [T, C], for every sample.
  Result (*add_broadcast)(const Tensor& x, const Tensor& b, Tensor& y);
  /// y [N, C]
  Result (*token_mean)(const Tensor& x, Tensor& y);
  Result (*token_mean_grad)(const Tensor& grad_y, Tensor& grad_x);
  /// y[n] = weight[tokens[n]]: tokens [N] int32 in 0 … V-1, weight [V, C], y [N, C].
  Result (*embedding)(const Tensor& tokens, const Tensor& weight, Tensor& y);
  /// grad_weight[v] = the sum of grad_y[n] over the n with tokens[n] = v, in an order that depends on the tokens only.
  Result (*embedding_grad)(const Tensor& grad_y, const Tensor& tokens, Tensor& grad_weight);

  // ---- losses: logits [N, C], labels [N] int32, loss [] (a scalar)

  /// loss = factor * sum over n of -log softmax(logits)[n, labels[n]]; probabilities = softmax(logits).
  Result (*cross_entropy)(const Tensor& logits, const Tensor& labels, double factor, Tensor& loss,
                          Tensor& probabilities);
  Result (*cross_entropy_grad)(const Tensor& grad_loss, const Tensor& probabilities, const Tensor& labels,
                               double factor, Tensor& grad_logits);
  // The same for logits whose classes are cut in equal slices: a slice [N, C / slices] has the classes from `first` on,
  // of `classes` in all.
  /// statistics [N, 4] = the slice's largest logit; its class, the first of equal ones; the sum of exp(logit -
  /// largest); and the label's logit, or 0 if the label is in another slice.
  Result (*class_statistics)(const Tensor& logits, const Tensor& labels, std::int64_t first, std::int64_t classes,
                             Tensor& statistics);
  /// Combines the statistics of all slices, [slices, N, 4] in their order. log softmax(logits) = (logit - largest) -
  /// log_sum, with the normalizers [N, 2] = (largest, log_sum); predictions [N] int32 are the classes of the largest.
  Result (*combined_cross_entropy)(const Tensor& statistics, double factor, Tensor& loss, Tensor& normalizers,
                                   Tensor& predictions);
  /// Computes the gradient of a slice of the logits.
  Result (*class_slice_grad)(const Tensor& grad_loss, const Tensor& logits, const Tensor& labels,
                             const Tensor& normalizers, std::int64_t first, double factor, Tensor& grad_logits);
  /// loss = factor * sum of (a - b)^2
  Result (*squared_error)(const Tensor& a, const Tensor& b, double factor, Tensor& loss);
  /// Computes the gradient with respect to `a`; the gradient with respect to `b` is its negative.
  Result (*squared_error_grad)(const Tensor& grad_loss, const Tensor& a, const Tensor& b, double factor,
                               Tensor& grad_a);

  // ---- batch_norm: over all but dimension 1 of x [N, C, …]; the other tensors are [C]

  Result (*channel_sums)(const Tensor& x, Tensor& out);
  /// Computes the statistics of the batch; the variance is divided by the count.
  Result (*batch_statistics)(const Tensor& x, Tensor& mean, Tensor& variance);
  /// Computes the sums of (x - mean)^2: the variance before division by the count, for a batch of which x is a part.
  Result (*squared_deviations)(const Tensor& x, const Tensor& mean, Tensor& sums);
  /// running = (1 - momentum) * running + momentum * batch; the variance is corrected for bias with `count` samples.
  Result (*update_running_statistics)(const Tensor& mean, const Tensor& variance, double momentum, std::int64_t count,
                                      Tensor& running_mean, Tensor& running_variance);
  /// out = 1 / sqrt(variance + epsilon): the reciprocal of the standard deviation.
  Result (*rstd)(const Tensor& variance, double epsilon, Tensor& out);
  /// y = activation((x - mean) * rstd * weight + bias + addend); `addend`, like x, may be undefined.
  Result (*batch_norm)(const Tensor& x, const Tensor& mean, const Tensor& rstd, const Tensor& weight,
                       const Tensor& bias, const Tensor& addend, Activation activation, Tensor& y);
  // The gradients with relu are those of a call without an addend.
  Result (*batch_norm_grad_weight)(const Tensor& grad_y, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                                   const Tensor& weight, const Tensor& bias, Activation activation, Tensor& grad_weight,
                                   Tensor& grad_bias);
  /// Computes the gradient for constant mean and variance, without an activation.
  Result (*batch_norm_grad_input)(const Tensor& grad_y, const Tensor& rstd, const Tensor& weight, Tensor& grad_x);
  /// Computes the gradient for the mean and variance of the batch, through which gradient flows too. `grad_weight` and
  /// `grad_bias` are the results of batch_norm_grad_weight for the whole batch, which has `count` values per channel.
  /// Often x is the whole batch.
  Result (*batch_norm_grad_input_of_batch)(const Tensor& grad_y, const Tensor& x, const Tensor& mean,
                                           const Tensor& rstd, const Tensor& weight, const Tensor& bias,
                                           Activation activation, const Tensor& grad_weight, const Tensor& grad_bias,
                                           std::int64_t count, Tensor& grad_x);

  // ---- layer_norm: over the rows of x [N, C]; weight and bias [C], mean and rstd [N]

  /// y = (x - mean) * rstd * weight + bias, with the mean of each row and rstd = 1 / sqrt(its variance + epsilon).
  Result (*layer_norm)(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon, Tensor& y,
                       Tensor& mean, Tensor& rstd);
  Result (*layer_norm_grad_input)(const Tensor& grad_y, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                                  const Tensor& weight, Tensor& grad_x);
  Result (*layer_norm_grad_weight)(const Tensor& grad_y, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                                   Tensor& grad_weight, Tensor& grad_bias);

  // ---- optimizer_steps: in place on the parameters and their state, all parameters in one call

  /// Computes the sum of the squares of each tensor (all of one type): sums [tensors.size()] float64. The order of the
  /// additions is fixed and the same on every device: blocks of 1,024 elements, each by 32 threads, thread t adding
  /// elements t, t + 32, …; the threads' sums pairwise (16 apart, 8 apart, …); then the blocks' sums likewise.
  Result (*sums_of_squares)(std::span<const Tensor> tensors, Tensor& sums);
  /// Multiplies the gradients by min(1, max_norm / (norm + 1e-6)), where norm is the root of the sum of `squares`
  /// [P] float64, which are added in order.
  Result (*clip_to_norm)(const Tensor& squares, double max_norm, std::span<Tensor> gradients);
  /// State: the velocity, initially zero; no state if momentum is 0.
  Result (*sgd_step)(std::span<ParameterUpdate> updates, const SgdSettings& settings);
  /// State: the first and the second moment, initially zero.
  Result (*adam_step)(std::span<ParameterUpdate> updates, const AdamSettings& settings);
  /// State: the sum of the squared gradients, initially zero.
  Result (*adagrad_step)(std::span<ParameterUpdate> updates, const AdagradSettings& settings);

  // ---- images

  /// Converts images [N, 3, H, W] uint8 to (pixel / 255 - mean) / deviation, float32.
  Result (*normalize)(const Tensor& images, const Normalization& normalization, Tensor& out);
  /// Copies samples out of a data set, rows [S, P, H, W] of any type, cropped and mirrored: of crops [N, 4] int32,
  /// which are (row, down, right, mirrored), out[n, p, y, x] = rows[row, p, y + down, x' + right], where x' is x or,
  /// mirrored, W - 1 - x; 0 where the source has no such element.
  Result (*gather)(const Tensor& rows, const Tensor& crops, Tensor& out);
  /// Adds to `count` ([] int32) the number of rows of logits [N, C] whose largest value is at the label.
  Result (*count_correct)(const Tensor& logits, const Tensor& labels, Tensor& count);
  /// Adds to `count` ([] int32) the number of equal elements of a and b, [N] int32.
  Result (*count_equal)(const Tensor& a, const Tensor& b, Tensor& count);
};

using Kernels = KernelTable<void>;

/// Returns the kernels of a device. Throws UsageError if this build has none for it.
const Kernels& kernels(Device device);

}  // namespace stagecoach
