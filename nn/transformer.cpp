#include "nn/transformer.h"

#include <cmath>

#include "core/ops.h"
#include "core/ops/output_shapes.h"

namespace stagecoach {
namespace {

std::shared_ptr<Module> make_dropout(const DropoutSettings& settings, const char* part) {
  return std::make_shared<Dropout>(settings.probability, settings.seed, settings.name + part);
}

/// [N, C, H, W] to [N, C, H W].
Shape joined_planes(const Shape& x) { return {x[0], x[1], x[2] * x[3]}; }

}  // namespace

PatchEmbedding::PatchEmbedding(std::int64_t image_size, std::int64_t patch, std::int64_t width)
    : proj_(std::make_shared<Conv2d>(3, width, patch, Conv2dSettings{.stride = patch})) {
  const std::int64_t tokens = (image_size / patch) * (image_size / patch);
  add_parameter("pos_embed", {tokens, width}, Init::uniform(0.02 * std::sqrt(3.0)));  // a standard deviation of 0.02
  add_child("proj", proj_);
}

Tensor PatchEmbedding::forward(const Tensor& x) {
  const Tensor patches = proj_->forward(x);
  return add_broadcast(transpose(patches.reshape(joined_planes(patches.shape()))), own("pos_embed"));
}

Shape PatchEmbedding::output_shape(const Shape& input) const {
  return add_broadcast_shape(transpose_shape(joined_planes(proj_->output_shape(input))), own_shape("pos_embed"));
}

PositionEmbedding::PositionEmbedding(std::int64_t context, std::int64_t width, double deviation,
                                     const DropoutSettings& dropout)
    : dropout_(make_dropout(dropout, "")) {
  add_parameter("weight", Shape{context, width}, Init::normal(deviation));
  add_child("drop", dropout_);
}

Tensor Attention::forward(const Tensor& x) { return attention(x, heads_, mask_); }

Shape Attention::output_shape(const Shape& input) const { return attention_shape(input, heads_); }

MultiHeadAttention::MultiHeadAttention(std::int64_t width, std::int64_t heads, const LayerFactory& layers,
                                       const BlockSettings& settings)
    : attention_(layers.attention(layers.heads(heads), settings.mask)),
      qkv_(layers.linear(width, 3 * width, Cut::outputs, 3, settings.init)),
      proj_(layers.linear(width, width, Cut::inputs, 1, settings.residual_init)) {
  add_child(settings.names.qkv, qkv_);
  add_child(settings.names.attn_proj, proj_);
}

Tensor MultiHeadAttention::forward(const Tensor& x) { return proj_->forward(attention_->forward(qkv_->forward(x))); }

Shape MultiHeadAttention::output_shape(const Shape& input) const {
  return proj_->output_shape(attention_->output_shape(qkv_->output_shape(input)));
}

Perceptron::Perceptron(std::int64_t width, std::int64_t hidden, const LayerFactory& layers,
                       const BlockSettings& settings)
    : fc1_(layers.linear(width, hidden, Cut::outputs, 1, settings.init)),
      gelu_(std::make_shared<GELU>(GeluForm::tanh)),
      fc2_(layers.linear(hidden, width, Cut::inputs, 1, settings.residual_init)) {
  add_child(settings.names.fc1, fc1_);
  add_child("gelu", gelu_);
  add_child(settings.names.fc2, fc2_);
}

Tensor Perceptron::forward(const Tensor& x) { return fc2_->forward(gelu_->forward(fc1_->forward(x))); }

Shape Perceptron::output_shape(const Shape& input) const {
  return fc2_->output_shape(gelu_->output_shape(fc1_->output_shape(input)));
}

TransformerBlock::TransformerBlock(std::int64_t width, std::int64_t heads, const LayerFactory& layers,
                                   const BlockSettings& settings)
    : norm1_(layers.token_norm(width)),
      attn_(std::make_shared<MultiHeadAttention>(width, heads, layers, settings)),
      dropout1_(make_dropout(settings.dropout, ".attn")),
      norm2_(layers.token_norm(width)),
      mlp_(std::make_shared<Perceptron>(width, kExpansion * width, layers, settings)),
      dropout2_(make_dropout(settings.dropout, ".mlp")) {
  add_child(settings.names.norm1, norm1_);
  add_child("attn", attn_);
  add_child("attn_dropout", dropout1_);
  add_child(settings.names.norm2, norm2_);
  add_child("mlp", mlp_);
  add_child("mlp_dropout", dropout2_);
}

Tensor TransformerBlock::forward(const Tensor& x) {
  const Tensor y = add(x, dropout1_->forward(attn_->forward(norm1_->forward(x))));
  return add(y, dropout2_->forward(mlp_->forward(norm2_->forward(y))));
}

Shape TransformerBlock::output_shape(const Shape& input) const {
  const Shape y = add_shape(input, attn_->output_shape(norm1_->output_shape(input)));
  return add_shape(y, mlp_->output_shape(norm2_->output_shape(y)));
}

}  // namespace stagecoach
