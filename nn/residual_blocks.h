#pragma once
/// @file
/// The residual blocks of He et al., "Deep residual learning for image recognition", 2015, figure 5. A block is a
/// single layer of a model, so a pipeline never splits it.

#include "nn/module.h"

namespace stagecoach {

/// relu(bn(conv 3x3(relu(bn(conv 3x3(x))))) + shortcut(x)): [N, inputs, H, W] to [N, outputs, H/stride, W/stride]. The
/// shortcut is x itself or, if the shape changes, a 1x1 convolution with batch norm.
class BasicBlock final : public Module {
 public:
  BasicBlock(std::int64_t inputs, std::int64_t outputs, std::int64_t stride);
  Tensor forward(const Tensor& x) override;
  Shape output_shape(const Shape& input) const override;

 private:
  std::shared_ptr<Module> conv1_, bn1_, conv2_, bn2_, shortcut_;
};

/// Convolutions 1x1, 3x3, 1x1 with `width` channels in the middle and 4 `width` at the end. The 3x3 convolution has the
/// stride, as in torchvision; in the paper it is the first 1x1 convolution.
class Bottleneck final : public Module {
 public:
  static constexpr std::int64_t kExpansion = 4;
  Bottleneck(std::int64_t inputs, std::int64_t width, std::int64_t stride);
  Tensor forward(const Tensor& x) override;
  Shape output_shape(const Shape& input) const override;

 private:
  std::shared_ptr<Module> conv1_, bn1_, conv2_, bn2_, conv3_, bn3_, shortcut_;
};

}  // namespace stagecoach
