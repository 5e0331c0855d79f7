#pragma once
/// @file
/// The residual blocks of He et al., "Deep residual learning for image recognition", 2015, figure 5. A block is a
/// single layer of a model, so a pipeline never splits it.

#include <vector>

#include "nn/layers.h"

namespace stagecoach {

/// relu(path(x) + shortcut(x)): [N, inputs, H, W] to [N, outputs, H/stride, W/stride]. The path is a list of
/// convolutions, each with batch norm, and relu between them. The shortcut is x itself or, if the shape changes, a 1x1
/// convolution with batch norm.
class ResidualBlock : public Module {
 public:
  Tensor forward(const Tensor& x) override;
  Shape output_shape(const Shape& input) const override;

 protected:
  /// A convolution of the path.
  struct Step {
    std::int64_t outputs;
    std::int64_t kernel;
    std::int64_t stride;
  };
  ResidualBlock(std::int64_t inputs, const std::vector<Step>& steps);

 private:
  struct Layers {
    std::shared_ptr<Module> conv;
    std::shared_ptr<BatchNorm2d> bn;
  };
  std::vector<Layers> path_;
  std::shared_ptr<Module> shortcut_;  // null if it is x itself
};

/// Two convolutions 3x3; the first has the stride.
class BasicBlock final : public ResidualBlock {
 public:
  BasicBlock(std::int64_t inputs, std::int64_t outputs, std::int64_t stride);
};

/// Convolutions 1x1, 3x3, 1x1 with `width` channels in the middle and 4 `width` at the end. The 3x3 convolution has the
/// stride, as in torchvision; in the paper it is the first 1x1 convolution.
class Bottleneck final : public ResidualBlock {
 public:
  static constexpr std::int64_t kExpansion = 4;
  Bottleneck(std::int64_t inputs, std::int64_t width, std::int64_t stride);
};

}  // namespace stagecoach
