#pragma once
/// @file
/// Makes the layers of a model that tensor parallelism can cut. A model says for each of them along which dimension of
/// its weight; the factory decides whether it is cut. This one makes whole layers; others are in
/// parallel/tensor_parallel/.

#include <cstdint>
#include <memory>
#include <optional>

#include "core/ops.h"
#include "nn/layers.h"
#include "nn/module.h"

namespace stagecoach {

/// How a layer can be cut over ranks. A layer cut by outputs gives each rank a slice of the features (channels, heads);
/// one cut by inputs takes such slices, and the ranks add what they have computed. So the two come in pairs, with
/// nothing but elementwise work, pooling or attention between them.
enum class Cut { none, outputs, inputs };

class LayerFactory {
 public:
  virtual ~LayerFactory() = default;

  /// Returns a linear layer (see Linear). The outputs may be several `sections` side by side, such as queries, keys and
  /// values: each rank then has a slice of each. Without `init` it begins as PyTorch's.
  std::shared_ptr<Module> linear(std::int64_t inputs, std::int64_t outputs, Cut cut, int sections = 1,
                                 const std::optional<LinearInit>& init = {}) const {
    return make_linear(inputs, outputs, cut, sections, init.value_or(LinearInit::fan_in(inputs)));
  }
  /// Returns a convolution with a bias (see Conv2d).
  virtual std::shared_ptr<Module> conv2d(std::int64_t inputs, std::int64_t outputs, std::int64_t kernel, Cut cut,
                                         const Conv2dSettings& settings = {}) const;
  /// Returns the last layer of a classifier, a linear one: cut by classes, where the ranks then have slices of the
  /// logits, if this factory does so (cuts_classes); otherwise cut as `otherwise` says.
  std::shared_ptr<Module> classifier(std::int64_t inputs, std::int64_t classes, Cut otherwise,
                                     const std::optional<LinearInit>& init = {}) const {
    return cuts_classes() ? make_linear_by_classes(inputs, classes, init.value_or(LinearInit::fan_in(inputs)))
                          : linear(inputs, classes, otherwise, 1, init);
  }
  /// Returns whether the last layer is cut by classes. It then needs whole inputs: the layer before it is not the first
  /// of a pair. The loss is that of class_parallel_loss.h.
  virtual bool cuts_classes() const { return false; }
  /// Returns how many of a model's attention heads a layer computes here.
  virtual std::int64_t heads(std::int64_t all) const { return all; }

  // Layers on tokens [N, T, C]. Where ranks share the tokens (sequence parallelism), each has T / ranks of every sample
  // from the embedding to the mean.
  virtual std::shared_ptr<Module> patch_embedding(std::int64_t image_size, std::int64_t patch,
                                                  std::int64_t width) const;
  virtual std::shared_ptr<Module> token_norm(std::int64_t width) const;
  /// Returns attention by so many heads, [N, T, 3 W] to [N, T, W] (see Attention).
  virtual std::shared_ptr<Module> attention(std::int64_t heads, AttentionMask mask) const;
  virtual std::shared_ptr<Module> token_mean() const;

 private:
  virtual std::shared_ptr<Module> make_linear(std::int64_t inputs, std::int64_t outputs, Cut cut, int sections,
                                              const LinearInit& init) const;
  virtual std::shared_ptr<Module> make_linear_by_classes(std::int64_t inputs, std::int64_t classes,
                                                         const LinearInit& init) const {
    return make_linear(inputs, classes, Cut::outputs, 1, init);
  }
};

}  // namespace stagecoach
