#include "nn/residual_blocks.h"

#include <fmt/format.h>

#include "core/ops.h"
#include "core/ops/output_shapes.h"
#include "nn/sequential.h"

namespace stagecoach {
namespace {

/// Returns a convolution that changes the height and width only by its stride.
std::shared_ptr<Module> conv(std::int64_t inputs, std::int64_t outputs, std::int64_t kernel, std::int64_t stride) {
  return std::make_shared<Conv2d>(inputs, outputs, kernel, Conv2dSettings{.stride = stride, .padding = kernel / 2},
                                  Bias::no);
}

/// Returns null if the shape does not change: the shortcut is then x itself.
std::shared_ptr<Module> projection(std::int64_t inputs, std::int64_t outputs, std::int64_t stride) {
  if (inputs == outputs && stride == 1) {
    return nullptr;
  }
  auto shortcut = std::make_shared<Sequential>();
  shortcut->add("conv", conv(inputs, outputs, 1, stride)).add("bn", std::make_shared<BatchNorm2d>(outputs));
  return shortcut;
}

}  // namespace

ResidualBlock::ResidualBlock(std::int64_t inputs, const std::vector<Step>& steps) {
  std::int64_t channels = inputs;
  std::int64_t stride = 1;
  for (const Step& step : steps) {
    path_.push_back(
        {conv(channels, step.outputs, step.kernel, step.stride), std::make_shared<BatchNorm2d>(step.outputs)});
    add_child(fmt::format("conv{}", path_.size()), path_.back().conv);
    add_child(fmt::format("bn{}", path_.size()), path_.back().bn);
    channels = step.outputs;
    stride *= step.stride;
  }
  shortcut_ = projection(inputs, channels, stride);
  if (shortcut_) {
    add_child("shortcut", shortcut_);
  }
}

Tensor ResidualBlock::forward(const Tensor& x) {
  Tensor y = x;
  for (std::size_t i = 0; i + 1 < path_.size(); ++i) {
    y = path_[i].bn->forward(path_[i].conv->forward(y), Activation::relu);
  }
  y = path_.back().conv->forward(y);
  return path_.back().bn->forward(y, Activation::relu, shortcut_ ? shortcut_->forward(x) : x);
}

Shape ResidualBlock::output_shape(const Shape& input) const {
  Shape shape = input;
  for (const Layers& layers : path_) {
    shape = layers.bn->output_shape(layers.conv->output_shape(shape));
  }
  return add_shape(shape, shortcut_ ? shortcut_->output_shape(input) : input);
}

BasicBlock::BasicBlock(std::int64_t inputs, std::int64_t outputs, std::int64_t stride)
    : ResidualBlock(inputs, {{outputs, 3, stride}, {outputs, 3, 1}}) {}

Bottleneck::Bottleneck(std::int64_t inputs, std::int64_t width, std::int64_t stride)
    : ResidualBlock(inputs, {{width, 1, 1}, {width, 3, stride}, {kExpansion * width, 1, 1}}) {}

}  // namespace stagecoach
