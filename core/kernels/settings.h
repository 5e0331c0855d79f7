#pragma once
/// @file
/// Arguments of kernels other than tensors.

#include <array>
#include <cstdint>

#include "core/random.h"

namespace stagecoach {

/// A sliding window with the same values in both dimensions.
struct Window {
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  /// Returns the number of positions along an extent: floor((extent + 2 padding - kernel) / stride) + 1.
  std::int64_t positions(std::int64_t extent) const { return (extent + 2 * padding - kernel) / stride + 1; }
};

/// The forms of GELU(x) = x Phi(x), where Phi is the distribution function of the standard normal distribution.
enum class GeluForm {
  exact,  ///< Phi(x) = (1 + erf(x / sqrt(2))) / 2
  tanh,   ///< Phi(x) is approximated by (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, to within 0.0005
};

/// What batch norm applies to its result.
enum class Activation { none, relu };

/// Which tokens a token of attention sees.
enum class AttentionMask {
  none,    ///< all of them
  causal,  ///< itself and those before it, as with is_causal of PyTorch's scaled_dot_product_attention
};

/// Which factors of a matrix product are stored transposed.
struct Transposed {
  bool a = false;
  bool b = false;
};

/// Settings of one stochastic gradient descent step (as in PyTorch's SGD, without dampening or Nesterov).
struct SgdSettings {
  double learning_rate = 0.01;
  double momentum = 0;
  double weight_decay = 0;
};

/// Settings of one Adam step. Source: Kingma and Ba, "Adam", 2015, algorithm 1. Weight decay is an L2 term of the
/// gradient or, decoupled from it, AdamW's: p = (1 - learning_rate weight_decay) p before the step (Loshchilov and
/// Hutter, "Decoupled weight decay regularization", 2019, algorithm 2).
struct AdamSettings {
  double learning_rate = 0.001;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  bool decoupled_decay = false;
};

/// Settings of one Adagrad step, whose state is the sum s of the squared gradients: p = p - learning_rate g / (sqrt(s)
/// + epsilon). Source: Duchi, Hazan and Singer, "Adaptive subgradient methods", 2011; weight decay as an L2 term.
struct AdagradSettings {
  double learning_rate = 0.01;
  double epsilon = 1e-10;
  double weight_decay = 0;
};

/// Which elements of x [N, …] dropout keeps: element e of a sample draws word e % 4 of the Philox block with the
/// counter (e / 4, first + the sample's index in x). So a sample's mask does not depend on what else is in x.
struct DropoutMask {
  double probability = 0;     ///< with which an element becomes 0
  Philox random = Philox(0);  ///< the stream of the layer
  std::uint64_t first = 0;    ///< step * 2^32 + the index of x's first sample in the batch of that step

  /// Returns the bound below which the upper 24 bits of a word drop its element.
  std::uint32_t threshold() const { return static_cast<std::uint32_t>(probability * 0x1p24 + 0.5); }
};

/// Mean and standard deviation per channel, for pixels scaled to the range 0 … 1.
struct Normalization {
  std::array<float, 3> mean{0.5F, 0.5F, 0.5F};
  std::array<float, 3> deviation{0.5F, 0.5F, 0.5F};
};

}  // namespace stagecoach
