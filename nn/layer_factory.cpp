#include "nn/layer_factory.h"

#include "nn/transformer.h"

namespace stagecoach {

std::shared_ptr<Module> LayerFactory::make_linear(std::int64_t inputs, std::int64_t outputs, Cut, int,
                                                  const LinearInit& init) const {
  return std::make_shared<Linear>(inputs, outputs, init);
}

std::shared_ptr<Module> LayerFactory::conv2d(std::int64_t inputs, std::int64_t outputs, std::int64_t kernel, Cut,
                                             const Conv2dSettings& settings) const {
  return std::make_shared<Conv2d>(inputs, outputs, kernel, settings);
}

std::shared_ptr<Module> LayerFactory::patch_embedding(std::int64_t image_size, std::int64_t patch,
                                                      std::int64_t width) const {
  return std::make_shared<PatchEmbedding>(image_size, patch, width);
}

std::shared_ptr<Module> LayerFactory::token_norm(std::int64_t width) const {
  return std::make_shared<LayerNorm>(width);
}

std::shared_ptr<Module> LayerFactory::attention(std::int64_t heads, AttentionMask mask) const {
  return std::make_shared<Attention>(heads, mask);
}

std::shared_ptr<Module> LayerFactory::token_mean() const { return std::make_shared<TokenMean>(); }

}  // namespace stagecoach
