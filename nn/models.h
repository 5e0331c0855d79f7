#pragma once
/// @file
/// The models that the chapters train, by name. Each is a Sequential, which a pipeline can split into stages.
///
/// | name       | input            | parameters (10 classes) | what it is                                      |
/// |------------|------------------|-------------------------|-------------------------------------------------|
/// | `toy`      | [N, 4]           | 44 (2 outputs)          | linear, relu, linear: small enough to print     |
/// | `convnet`  | [N, 3, 32, 32]   | 62,006                  | two convolutions and three linear layers        |
/// | `resnet18` | [N, 3, 32, 32]   | 11,173,962              | He et al. 2015 in its form for small images     |
/// | `resnet50` | [N, 3, 64, 64]   | 23,528,522              | He et al. 2015 with bottlenecks                 |
/// | `vit`      | [N, 3, 32, 32]   | 407,882                 | a small vision transformer                      |
/// | `mlp`      | [N, 3, 32, 32]   | 578,314                 | equal linear layers: the quickest equal stages  |
/// | `gpt`      | [N, 64] int32    | 237,184 (256 classes)   | a small causal transformer over bytes of text   |
///
/// `vit` is the vision transformer of Dosovitskiy et al., "An image is worth 16x16 words", 2021, for small images:
/// patches of 4 x 4 by a convolution, a learned position embedding, 8 equal pre-norm blocks 64 wide (layer norm,
/// attention with 4 heads, layer norm, a perceptron with a hidden layer 4 times as wide and GELU in its tanh form), a
/// last layer norm, and a linear head on the mean over the tokens, which replaces the class token (Beyer et al.,
/// "Better plain ViT baselines for ImageNet-1k", 2022). There is no dropout.
///
/// `gpt` is GPT-2 (Radford et al., "Language models are unsupervised multitask learners", 2019) with bytes for tokens:
/// embeddings of tokens and positions, 4 of the same blocks with the causal mask, a last layer norm, and a linear head,
/// which gives logits for the token after each: [N, context] to [N, context, classes]. Dropout comes after the
/// embedding and before each addition. First weights are normal with deviation 0.02, divided by sqrt(2 depth) in front
/// of additions; biases are 0. Parameters have nanoGPT's names. The head has weights of its own and a bias, or, tied to
/// the embedding as GPT-2's, a copy of its weights and no bias.
///
/// `mlp` shrinks the images to 8 x 8 by max pooling, so that its first layer costs about as much as each of the 8
/// equal hidden layers after it, 256 wide with relu.

#include <memory>
#include <string>
#include <vector>

#include "nn/layer_factory.h"
#include "nn/sequential.h"
#include "nn/tied_weights.h"

namespace stagecoach {

/// The sizes of a model that can be chosen; 0 is the model's default.
struct ModelSizes {
  std::int64_t depth = 0;    ///< equal layers: blocks of vit and gpt, hidden layers of mlp
  std::int64_t width = 0;    ///< features of a token, or of a hidden layer
  std::int64_t heads = 0;    ///< heads of attention, which divide the width
  std::int64_t context = 0;  ///< tokens of a sequence
};

struct ModelSettings {
  bool softmax_head = false;     ///< end in probabilities (a layer named softmax) in place of logits
  std::int64_t classes = 10;     ///< outputs; toy always has two
  std::int64_t image_size = 32;  ///< height and width of the images; toy and gpt have none
  ModelSizes sizes = {};
  double dropout = 0;      ///< probability, in 0 … 1 without 1; only gpt has dropout
  bool tie_head = false;   ///< gpt's head has no bias, and a program keeps its weights those of tied_head()
  std::uint64_t seed = 0;  ///< of the dropout
  /// Makes the layers that tensor parallelism can cut; null makes them whole. resnet18 and resnet50 have none.
  std::shared_ptr<const LayerFactory> layers = {};
};

std::vector<std::string> model_names();

/// Returns a new model, without memory. Throws UsageError for an unknown name (listing the known ones), for settings
/// that the model does not support, and for a softmax head on toy, which predicts numbers, not classes.
std::shared_ptr<Sequential> make_model(const std::string& name, const ModelSettings& settings = {});

/// Returns the parameters that a program keeps equal in a model with `tie_head`.
inline TiedWeights::Names tied_head() { return {{"transformer.wte.weight", "lm_head.weight"}}; }

/// Returns the default sizes of a model: 0 where its layers are fixed.
ModelSizes default_sizes(const std::string& name);

/// Throws UsageError for sizes that the model does not have, and for heads that do not divide the width.
void require_sizes(const std::string& name, const ModelSizes& sizes);

/// Returns the image size that a model is designed for; 0 if its inputs are tokens.
std::int64_t default_image_size(const std::string& name);

}  // namespace stagecoach
