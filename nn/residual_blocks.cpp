#include "nn/residual_blocks.h"

#include "core/ops.h"
#include "core/ops/output_shapes.h"
#include "nn/layers.h"
#include "nn/sequential.h"

namespace stagecoach {
namespace {

/// Returns a convolution that changes the height and width only by its stride.
std::shared_ptr<Module> conv(std::int64_t inputs, std::int64_t outputs, std::int64_t kernel, std::int64_t stride) {
  return std::make_shared<Conv2d>(inputs, outputs, kernel, Conv2dSettings{.stride = stride, .padding = kernel / 2},
                                  Bias::no);
}

std::shared_ptr<Module> norm(std::int64_t channels) { return std::make_shared<BatchNorm2d>(channels); }

/// Returns null if the shape does not change: the shortcut is then x itself.
std::shared_ptr<Module> projection(std::int64_t inputs, std::int64_t outputs, std::int64_t stride) {
  if (inputs == outputs && stride == 1) {
    return nullptr;
  }
  auto shortcut = std::make_shared<Sequential>();
  shortcut->add("conv", conv(inputs, outputs, 1, stride)).add("bn", norm(outputs));
  return shortcut;
}

}  // namespace

BasicBlock::BasicBlock(std::int64_t inputs, std::int64_t outputs, std::int64_t stride)
    : conv1_(conv(inputs, outputs, 3, stride)),
      bn1_(norm(outputs)),
      conv2_(conv(outputs, outputs, 3, 1)),
      bn2_(norm(outputs)),
      shortcut_(projection(inputs, outputs, stride)) {
  add_child("conv1", conv1_);
  add_child("bn1", bn1_);
  add_child("conv2", conv2_);
  add_child("bn2", bn2_);
  if (shortcut_) {
    add_child("shortcut", shortcut_);
  }
}

Tensor BasicBlock::forward(const Tensor& x) {
  const Tensor y = relu(bn1_->forward(conv1_->forward(x)));
  const Tensor z = bn2_->forward(conv2_->forward(y));
  return relu(add(z, shortcut_ ? shortcut_->forward(x) : x));
}

Shape BasicBlock::output_shape(const Shape& input) const {
  const Shape y = bn1_->output_shape(conv1_->output_shape(input));
  const Shape z = bn2_->output_shape(conv2_->output_shape(y));
  return add_shape(z, shortcut_ ? shortcut_->output_shape(input) : input);
}

Bottleneck::Bottleneck(std::int64_t inputs, std::int64_t width, std::int64_t stride)
    : conv1_(conv(inputs, width, 1, 1)),
      bn1_(norm(width)),
      conv2_(conv(width, width, 3, stride)),
      bn2_(norm(width)),
      conv3_(conv(width, kExpansion * width, 1, 1)),
      bn3_(norm(kExpansion * width)),
      shortcut_(projection(inputs, kExpansion * width, stride)) {
  add_child("conv1", conv1_);
  add_child("bn1", bn1_);
  add_child("conv2", conv2_);
  add_child("bn2", bn2_);
  add_child("conv3", conv3_);
  add_child("bn3", bn3_);
  if (shortcut_) {
    add_child("shortcut", shortcut_);
  }
}

Tensor Bottleneck::forward(const Tensor& x) {
  const Tensor y = relu(bn1_->forward(conv1_->forward(x)));
  const Tensor z = relu(bn2_->forward(conv2_->forward(y)));
  const Tensor w = bn3_->forward(conv3_->forward(z));
  return relu(add(w, shortcut_ ? shortcut_->forward(x) : x));
}

Shape Bottleneck::output_shape(const Shape& input) const {
  const Shape y = bn1_->output_shape(conv1_->output_shape(input));
  const Shape z = bn2_->output_shape(conv2_->output_shape(y));
  const Shape w = bn3_->output_shape(conv3_->output_shape(z));
  return add_shape(w, shortcut_ ? shortcut_->output_shape(input) : input);
}

}  // namespace stagecoach
