#pragma once
/// @file
/// The operations on tensors, each with its gradient. If gradients are enabled and an input needs one, an operation
/// records a node (core/autograd); otherwise it only computes. All inputs of a call are on one device and, except for
/// labels and images, have one type, float32 or float64. Mismatched shapes throw Error.
///
/// reshape, narrow and to (another device) are members of Tensor.

#include <cstdint>
#include <functional>
#include <vector>

#include "core/kernels/settings.h"
#include "core/tensor.h"

namespace stagecoach {

/// Returns a + b, for equal shapes.
Tensor add(const Tensor& a, const Tensor& b);
/// Returns factor * x.
Tensor scale(const Tensor& x, double factor);

/// Returns x + b, where b is added to every sample: x [N, …], b […].
Tensor add_broadcast(const Tensor& x, const Tensor& b);

/// Returns x weight^T + bias […, O]: x […, I], weight [O, I], bias [O] or undefined.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});
/// Returns the products of pairs of matrices, […, M, N]: a […, M, K], b […, K, N]. Nothing is broadcast.
Tensor matmul(const Tensor& a, const Tensor& b);

struct Conv2dSettings {
  std::int64_t stride = 1;
  std::int64_t padding = 0;
};
/// Returns the cross-correlation that every framework calls convolution, [N, O, P, Q]: x [N, C, H, W], weight
/// [O, C, K, K], bias [O] or undefined. P = (H + 2 padding - K) / stride + 1, rounded down, and Q likewise.
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const Conv2dSettings& settings = {});

/// Returns max(x, 0); the gradient is 0 where x is 0.
Tensor relu(const Tensor& x);
/// Returns x Phi(x), in one of two forms. Saves x, and computes erf or tanh again in the backward.
Tensor gelu(const Tensor& x, GeluForm form = GeluForm::exact);
/// Returns the largest value of each window (never the padding): x [N, C, H, W]. The padding is at most half the
/// kernel.
Tensor max_pool2d(const Tensor& x, const Window& window);
/// Returns the mean of each plane: [N, C, H, W] to [N, C].
Tensor global_average_pool(const Tensor& x);
/// Reshapes [N, …] to [N, the product of the rest].
Tensor flatten(const Tensor& x);

/// Returns x [N, …] in parts of `rows` rows each, such as micro-batches; the last one may be smaller. Views of x.
std::vector<Tensor> split(const Tensor& x, std::int64_t rows);
/// Returns the rows of all `parts` [n, …] (at least one part), one part after another.
Tensor cat(const std::vector<Tensor>& parts);

/// Returns elements start … start+length-1 of the last dimension of x […, C]: […, length].
Tensor narrow_columns(const Tensor& x, std::int64_t start, std::int64_t length);
/// Returns the elements of all `parts` […, c] (at least one part) side by side: […, the sum of all c].
Tensor cat_columns(const std::vector<Tensor>& parts);

/// Returns the rows of weight [V, C] at the tokens […] int32, in 0 … V-1: […, C]. The gradient of a row is the sum over
/// its tokens, in their order.
Tensor embedding(const Tensor& tokens, const Tensor& weight);
/// Returns x [N, …] with some elements 0 and the others divided by 1 - mask.probability (below 1). The mask says which;
/// the backward draws its numbers again, so nothing is saved. Throws Error in a recording (core/replay.h), which would
/// repeat its mask.
/// Source: Srivastava et al., "Dropout", 2014, in the form that scales in training ("inverted").
Tensor dropout(const Tensor& x, const DropoutMask& mask);

/// Exchanges the last two dimensions: […, R, C] to […, C, R].
Tensor transpose(const Tensor& x);
/// Returns the mean over the tokens of each sample: [N, T, C] to [N, C].
Tensor token_mean(const Tensor& x);

/// Returns exp(x) / sum of exp(x), over the last dimension of […, C].
Tensor softmax(const Tensor& x);
/// Returns log(softmax(x)), computed without overflow.
Tensor log_softmax(const Tensor& x);

/// Returns softmax(q k^T / sqrt(D)) v [N, T, W] for each head: qkv [N, T, 3 W] holds q, k and v [N, T, W] side by side,
/// and each of `heads` equal parts of W, D = W / heads wide, is a head. Saves qkv only: the backward computes the
/// probabilities again. On a CPU both passes hold those of at most 64 queries of a head at a time, on a GPU those of
/// all heads until the pass is done, and the backward their gradients too; no [T, T] matrix is kept for the backward.
/// With the causal mask, the softmax of token t is over tokens 0 … t only: about half of the work.
/// Source: Vaswani et al., "Attention is all you need", 2017, section 3.2, without the projections.
Tensor attention(const Tensor& qkv, std::int64_t heads, AttentionMask mask = AttentionMask::none);

enum class Reduction { mean, sum };
/// Returns the mean or the sum over the samples n of -log softmax(logits)[n, labels[n]]: logits [N, C], labels [N]
/// int32 in 0 … C-1; or [N, …, C] and [N, …]: of its mean over a sample's labels. Micro-batches use the sum and divide
/// by the size of the whole batch, which weights unequal micro-batches correctly. The sum over no samples is 0.
Tensor cross_entropy(const Tensor& logits, const Tensor& labels, Reduction reduction = Reduction::mean);
/// Returns the mean or the sum of (a - b)^2 over all elements.
Tensor mean_squared_error(const Tensor& a, const Tensor& b, Reduction reduction = Reduction::mean);

/// Settings of batch norm.
struct BatchNormSettings {
  bool training = true;   ///< normalise by the batch's statistics, or by the running ones
  bool update = true;     ///< in training: update the running ones; a recomputed forward must not
  double momentum = 0.1;  ///< the weight of the new batch in the running statistics
  double epsilon = 1e-5;
  Activation activation = Activation::none;  ///< applied to the result, in the same pass
  /// Replaces a small tensor by its sum over all ranks that share the batch; empty if the batch is not shared. In
  /// training these ranks then call batch_norm and its backward together, each with its own part of the samples, which
  /// may be empty. They normalise by the statistics of the whole batch; the gradients of weight and bias remain sums
  /// over the rank's own part.
  std::function<void(Tensor& tensor)> sum_over_ranks = {};
};
/// Returns (x - mean) / sqrt(variance + epsilon) * weight + bias, per channel: x [N, C] or [N, C, H, W], the others
/// [C]. In training, a channel needs at least two values (over all parts of the batch). An addend, like x, is added
/// before the activation, in the same pass; the bytes are those of add(batch_norm(x, …), addend), and of relu of it.
/// Source: Ioffe and Szegedy, "Batch normalization", 2015, algorithm 1.
Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor running_mean,
                  Tensor running_variance, const BatchNormSettings& settings = {}, const Tensor& addend = {});

/// Returns (x - mean) / sqrt(variance + epsilon) * weight + bias, with the mean and variance of each row of x […, C];
/// weight and bias [C]. Saves x, and the mean and 1 / sqrt(variance + epsilon) of each row.
/// Source: Ba, Kiros and Hinton, "Layer normalization", 2016.
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon = 1e-5);

/// Converts images [N, 3, H, W] from uint8 to float32, scaled to 0 … 1 and normalised. No gradient.
Tensor normalize(const Tensor& images, const Normalization& normalization = {});
/// Adds to `count` ([] int32) the number of correct predictions: rows of logits [N, …, C] whose largest value is at the
/// label [N, …], or classes [N, …] int32 that equal the label. No gradient.
void count_correct(const Tensor& predictions, const Tensor& labels, Tensor& count);
/// Computes sum ([] float64) += x ([]). No gradient. Accumulates losses on their device, without waiting for it.
void accumulate(const Tensor& x, Tensor& sum);

}  // namespace stagecoach
