#include "nn/layers.h"

#include <cmath>

#include "core/base/error.h"
#include "core/base/throw_if.h"
#include "nn/batch_position.h"
#include "nn/running_statistics.h"

namespace stagecoach {
namespace {

/// Requires images, for batch norm; the operation itself accepts [N, C] too.
void require_planes(const Shape& x) {
  STAGECOACH_CHECK(x.dims() == 4, "batch norm layer: expected input [N, C, H, W], got {}", to_string(x));
}

}  // namespace

Init fan_in_init(std::int64_t fan_in, double gain) {
  return Init::uniform(gain / std::sqrt(static_cast<double>(fan_in)));
}

Linear::Linear(std::int64_t inputs, std::int64_t outputs, const LinearInit& init, Bias bias) : bias_(bias) {
  STAGECOACH_CHECK(inputs > 0 && outputs > 0, "linear layer: expected positive sizes, got {} inputs and {} outputs",
                   inputs, outputs);
  add_parameter("weight", {outputs, inputs}, init.weight);
  if (bias_ == Bias::yes) {
    add_parameter("bias", {outputs}, init.bias);
  }
}

Tensor Linear::forward(const Tensor& x) {
  return linear(x, own("weight"), bias_ == Bias::yes ? own("bias") : Tensor());
}

Shape Linear::output_shape(const Shape& input) const { return linear_shape(input, own_shape("weight")); }

Conv2d::Conv2d(std::int64_t inputs, std::int64_t outputs, std::int64_t kernel, const Conv2dSettings& settings,
               Bias bias)
    : settings_(settings), bias_(bias) {
  STAGECOACH_CHECK(inputs > 0 && outputs > 0 && kernel > 0,
                   "convolution layer: expected positive sizes, got {} inputs, {} outputs, kernel {}", inputs, outputs,
                   kernel);
  const Init init = fan_in_init(inputs * kernel * kernel);
  add_parameter("weight", {outputs, inputs, kernel, kernel}, init);
  if (bias_ == Bias::yes) {
    add_parameter("bias", {outputs}, init);
  }
}

Tensor Conv2d::forward(const Tensor& x) {
  return conv2d(x, own("weight"), bias_ == Bias::yes ? own("bias") : Tensor(), settings_);
}

Shape Conv2d::output_shape(const Shape& input) const { return conv2d_shape(input, own_shape("weight"), settings_); }

Embedding::Embedding(std::int64_t vocabulary, std::int64_t width, double deviation) {
  STAGECOACH_CHECK(vocabulary > 0 && width > 0, "embedding layer: expected positive sizes, got {} tokens and width {}",
                   vocabulary, width);
  add_parameter("weight", {vocabulary, width}, Init::normal(deviation));
}

Dropout::Dropout(double probability, std::uint64_t seed, const std::string& name)
    : probability_(probability), name_(name), random_(seed, name + ".dropout") {
  throw_if<UsageError>(!(probability >= 0 && probability < 1),
                       "dropout layer: expected a probability in [0, 1), got {}", probability);
}

Tensor Dropout::forward(const Tensor& x) {
  if (!is_training() || probability_ == 0) {
    return x;
  }
  const auto& position = BatchScope::current();
  STAGECOACH_CHECK(position.has_value(),
                   "dropout layer: expected the position of the batch, got none; construct a BatchScope before the "
                   "forward, or evaluate with train(false)");
  return dropout(x, {probability_, random_,
                     (static_cast<std::uint64_t>(position->step) << 32) + static_cast<std::uint64_t>(position->first)});
}

LayerNorm::LayerNorm(std::int64_t width, double epsilon) : epsilon_(epsilon) {
  STAGECOACH_CHECK(width > 0, "layer norm layer: expected a positive width, got {}", width);
  add_parameter("weight", {width}, Init::constant(1));
  add_parameter("bias", {width}, Init::constant(0));
}

Tensor LayerNorm::forward(const Tensor& x) { return layer_norm(x, own("weight"), own("bias"), epsilon_); }

Shape LayerNorm::output_shape(const Shape& input) const { return layer_norm_shape(input, own_shape("weight")); }

BatchNorm2d::BatchNorm2d(std::int64_t channels, double momentum, double epsilon)
    : momentum_(momentum), epsilon_(epsilon) {
  STAGECOACH_CHECK(channels > 0, "batch norm layer: expected at least one channel, got {}", channels);
  add_parameter("weight", {channels}, Init::constant(1));
  add_parameter("bias", {channels}, Init::constant(0));
  add_buffer("running_mean", {channels}, Init::constant(0));
  add_buffer("running_var", {channels}, Init::constant(1));
}

Tensor BatchNorm2d::forward(const Tensor& x, Activation activation, const Tensor& addend) {
  require_planes(x.shape());
  return batch_norm(x, own("weight"), own("bias"), own("running_mean"), own("running_var"),
                    {.training = is_training(),
                     .update = !KeepRunningStatistics::is_active(),
                     .momentum = momentum_,
                     .epsilon = epsilon_,
                     .activation = activation,
                     .sum_over_ranks = sum_over_ranks_},
                    addend);
}

Shape BatchNorm2d::output_shape(const Shape& input) const {
  require_planes(input);
  return batch_norm_shape(input, own_shape("weight")[0]);
}

}  // namespace stagecoach
