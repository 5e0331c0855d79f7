#pragma once
/// @file
/// The operations on tensors, each with its gradient. With gradients enabled and an input that needs one,
/// an operation records a node (core/autograd); otherwise it only computes. All inputs of a call are on one
/// device and, labels and images apart, have one type, float32 or float64. Shapes that do not fit throw Error.
///
/// reshape and narrow are members of Tensor.

#include <cstdint>
#include <functional>

#include "core/kernels/kernels.h"
#include "core/tensor.h"

namespace stagecoach {

/// a + b; equal shapes.
Tensor add(const Tensor& a, const Tensor& b);
/// factor * x
Tensor scale(const Tensor& x, double factor);

/// x weight^T + bias: x [N, I], weight [O, I], bias [O] or undefined; gives [N, O].
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

struct Conv2dSettings {
  std::int64_t stride = 1;
  std::int64_t padding = 0;
};
/// Cross-correlation, as in every framework: x [N, C, H, W], weight [O, C, K, K], bias [O] or undefined; gives
/// [N, O, P, Q] with P = (H + 2 padding - K) / stride + 1, rounded down, and Q alike.
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const Conv2dSettings& settings = {});

/// max(x, 0); where x is 0 the gradient is 0.
Tensor relu(const Tensor& x);
/// The largest of each window (padding never wins); x [N, C, H, W]. Padding is at most half the kernel.
Tensor max_pool2d(const Tensor& x, const Window& window);
/// The mean of each plane: [N, C, H, W] to [N, C].
Tensor global_average_pool(const Tensor& x);
/// [N, …] to [N, the product of the rest].
Tensor flatten(const Tensor& x);

/// exp(x) / sum of exp(x), over the rows of [N, C].
Tensor softmax(const Tensor& x);
/// log(softmax(x)), computed without overflow.
Tensor log_softmax(const Tensor& x);

enum class Reduction { mean, sum };
/// -log softmax(logits)[n, labels[n]], as the mean or the sum over n: logits [N, C], labels [N] int32 in 0 … C-1.
/// Micro-batches use the sum and divide by the size of the whole batch: then uneven ones weigh what they should. The
/// sum over no samples is 0.
Tensor cross_entropy(const Tensor& logits, const Tensor& labels, Reduction reduction = Reduction::mean);
/// (a - b)^2, as the mean or the sum over all elements.
Tensor mean_squared_error(const Tensor& a, const Tensor& b, Reduction reduction = Reduction::mean);

/// What batch norm knows besides its parameters.
struct BatchNormSettings {
  bool training = true;   ///< normalise by the batch (and update the running statistics), or by the latter
  bool update = true;     ///< in training: whether to update them; a forward that is run again must not
  double momentum = 0.1;  ///< the share of the new batch in the running statistics
  double epsilon = 1e-5;
  /// Replaces a small tensor by its sum over all who share the batch; empty when nobody does. In training all of them
  /// then call batch_norm together, and its backward, each with its part of the samples, be it none. They normalise by
  /// the statistics of the whole; the gradients of weight and bias remain sums over the own part.
  std::function<void(Tensor& tensor)> sum_over_ranks = {};
};
/// (x - mean) / sqrt(variance + epsilon) * weight + bias, channel by channel: x [N, C] or [N, C, H, W], the others [C].
/// Source: Ioffe and Szegedy, "Batch normalization", 2015, algorithm 1. In training a channel needs two values
/// (in all parts of the batch together).
Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor running_mean,
                  Tensor running_variance, const BatchNormSettings& settings = {});

/// images [N, 3, H, W] uint8 to float32, scaled to 0 … 1 and normalised. No gradient.
Tensor normalize(const Tensor& images, const Normalization& normalization = {});
/// Adds to `count` ([] int32) how many rows of logits [N, C] are largest at their label. No gradient.
void count_correct(const Tensor& logits, const Tensor& labels, Tensor& count);
/// sum ([] float64) += x ([]). No gradient. Adds up losses where they are, without waiting for the device.
void accumulate(const Tensor& x, Tensor& sum);

}  // namespace stagecoach
