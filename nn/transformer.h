#pragma once
/// @file
/// The parts of transformers: images (Dosovitskiy et al., "An image is worth 16x16 words", 2021) or bytes of text
/// become tokens, and blocks of attention and perceptrons transform them. A block is a single layer of a model, so a
/// pipeline never splits it. The parameters of a block have the names of the library timm, or those of nanoGPT.

#include <optional>
#include <string>

#include "core/kernels/settings.h"
#include "nn/layer_factory.h"
#include "nn/module.h"

namespace stagecoach {

/// Cuts images into patches and makes a token of each: a convolution whose stride is the width of its kernel, plus a
/// learned position embedding. [N, 3, image_size, image_size] to [N, T, width], with T = (image_size / patch)^2.
class PatchEmbedding : public Module {
 public:
  PatchEmbedding(std::int64_t image_size, std::int64_t patch, std::int64_t width);
  Tensor forward(const Tensor& x) override;
  Shape output_shape(const Shape& input) const override;

 private:
  std::shared_ptr<Module> proj_;
};

/// What Dropout is made of. The layers of a model have names of their own in it.
struct DropoutSettings {
  double probability = 0;
  std::uint64_t seed = 0;
  std::string name = "";
};

/// Adds a learned vector for each position, then dropout: [N, context, width] to the same.
class PositionEmbedding final : public Module {
 public:
  PositionEmbedding(std::int64_t context, std::int64_t width, double deviation, const DropoutSettings& dropout);
  Tensor forward(const Tensor& x) override { return dropout_->forward(add_broadcast(x, own("weight"))); }
  Shape output_shape(const Shape& input) const override { return add_broadcast_shape(input, own_shape("weight")); }

 private:
  std::shared_ptr<Module> dropout_;
};

/// How a block is made. The defaults are those of a vision transformer.
struct BlockSettings {
  AttentionMask mask = AttentionMask::none;
  /// The names of its parts, besides "attn" and "mlp".
  struct Names {
    const char *norm1 = "norm1", *norm2 = "norm2", *qkv = "qkv", *attn_proj = "proj", *fc1 = "fc1", *fc2 = "fc2";
  } names = {};
  std::optional<LinearInit> init = {};           ///< of its linear layers; none: as PyTorch's
  std::optional<LinearInit> residual_init = {};  ///< of the two whose outputs are added to its input
  DropoutSettings dropout = {};                  ///< of these outputs
};

/// Attention without projections (see attention in core/ops.h): queries, keys and values [N, T, 3 W] to [N, T, W].
class Attention final : public Module {
 public:
  explicit Attention(std::int64_t heads, AttentionMask mask = AttentionMask::none) : heads_(heads), mask_(mask) {}
  Tensor forward(const Tensor& x) override;
  Shape output_shape(const Shape& input) const override;

 private:
  std::int64_t heads_;
  AttentionMask mask_;
};

/// Self-attention of all tokens, by several heads: [N, T, width] to [N, T, width]. One linear layer computes queries,
/// keys and values, and another one mixes the heads' results (Vaswani et al. 2017, section 3.2.2). With the causal
/// mask, an output depends on no later token.
class MultiHeadAttention final : public Module {
 public:
  MultiHeadAttention(std::int64_t width, std::int64_t heads, const LayerFactory& layers = {},
                     const BlockSettings& settings = {});
  Tensor forward(const Tensor& x) override;
  Shape output_shape(const Shape& input) const override;

 private:
  std::shared_ptr<Module> attention_, qkv_, proj_;
};

/// Two linear layers with GELU in its tanh form between them, applied to each token: […, width] to […, hidden] to
/// […, width].
class Perceptron final : public Module {
 public:
  Perceptron(std::int64_t width, std::int64_t hidden, const LayerFactory& layers = {},
             const BlockSettings& settings = {});
  Tensor forward(const Tensor& x) override;
  Shape output_shape(const Shape& input) const override;

 private:
  std::shared_ptr<Module> fc1_, gelu_, fc2_;
};

/// y = x + attention(norm1(x)), then y + mlp(norm2(y)): [N, T, width] to [N, T, width]; what is added goes through
/// dropout. Normalising first (pre-norm)
/// keeps the path of the additions free, so that training needs no warm-up (Xiong et al., "On layer normalization in
/// the transformer architecture", 2020).
class TransformerBlock final : public Module {
 public:
  static constexpr std::int64_t kExpansion = 4;  ///< width of the perceptron's hidden layer over that of a token
  TransformerBlock(std::int64_t width, std::int64_t heads, const LayerFactory& layers = {},
                   const BlockSettings& settings = {});
  Tensor forward(const Tensor& x) override;
  Shape output_shape(const Shape& input) const override;

 private:
  std::shared_ptr<Module> norm1_, attn_, dropout1_, norm2_, mlp_, dropout2_;
};

}  // namespace stagecoach
