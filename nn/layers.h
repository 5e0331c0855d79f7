#pragma once
/// @file
/// The layers that models are made of: each wraps one operation of core/ops.h and owns its parameters. Parameters have
/// the names, shapes and initial values of PyTorch's layers.

#include <functional>
#include <string>
#include <utility>

#include "core/ops.h"
#include "core/ops/output_shapes.h"
#include "nn/module.h"

namespace stagecoach {

/// Whether a layer adds a bias. A batch norm after the layer would cancel it.
enum class Bias { yes, no };

/// Returns the rule for the first weights and biases of a layer in which `fan_in` numbers contribute to each output:
/// uniform within ±gain / sqrt(fan_in). PyTorch's default for linear and convolutional layers (which PyTorch writes as
/// Kaiming initialisation with a = sqrt(5)).
Init fan_in_init(std::int64_t fan_in, double gain = 1);

/// The rules for the first weights and biases of a linear layer.
struct LinearInit {
  Init weight;
  Init bias;

  /// PyTorch's default, with weights multiplied by `gain`.
  static LinearInit fan_in(std::int64_t inputs, double gain = 1) {
    return {fan_in_init(inputs, gain), fan_in_init(inputs)};
  }
};

/// x weight^T + bias: […, inputs] to […, outputs].
class Linear final : public Module {
 public:
  Linear(std::int64_t inputs, std::int64_t outputs, Bias bias = Bias::yes)
      : Linear(inputs, outputs, LinearInit::fan_in(inputs), bias) {}
  Linear(std::int64_t inputs, std::int64_t outputs, const LinearInit& init, Bias bias = Bias::yes);
  Tensor forward(const Tensor& x) override;
  Shape output_shape(const Shape& input) const override;

 private:
  Bias bias_;
};

/// [N, inputs, H, W] to [N, outputs, P, Q]; see conv2d. Initial values are uniform within ±1 / sqrt(inputs kernel^2).
class Conv2d final : public Module {
 public:
  Conv2d(std::int64_t inputs, std::int64_t outputs, std::int64_t kernel, const Conv2dSettings& settings = {},
         Bias bias = Bias::yes);
  Tensor forward(const Tensor& x) override;
  Shape output_shape(const Shape& input) const override;

 private:
  Conv2dSettings settings_;
  Bias bias_;
};

/// Rows of the weight [vocabulary, width] by tokens: […] int32 to […, width]. Initial values are normal, with mean 0.
class Embedding final : public Module {
 public:
  Embedding(std::int64_t vocabulary, std::int64_t width, double deviation = 1);
  Tensor forward(const Tensor& tokens) override { return embedding(tokens, own("weight")); }
  Shape output_shape(const Shape& input) const override { return embedding_shape(input, own_shape("weight")); }
};

/// In training sets elements of x [N, …] to 0 with `probability`, and divides the others by 1 - probability; in
/// evaluation returns x. Which elements, depends on the seed, the layer's name in the whole model, and the position of
/// the batch (nn/batch_position.h): not on micro-batches or ranks, and a forward that is computed again has the same.
class Dropout final : public Module {
 public:
  Dropout(double probability, std::uint64_t seed, const std::string& name);
  double probability() const { return probability_; }
  const std::string& name() const { return name_; }
  /// Throws Error in training outside a BatchScope.
  Tensor forward(const Tensor& x) override;
  Shape output_shape(const Shape& input) const override { return input; }

 private:
  double probability_;
  std::string name_;
  Philox random_;
};

class ReLU final : public Module {
 public:
  Tensor forward(const Tensor& x) override { return relu(x); }
  Shape output_shape(const Shape& input) const override { return input; }
};

class GELU final : public Module {
 public:
  explicit GELU(GeluForm form = GeluForm::exact) : form_(form) {}
  Tensor forward(const Tensor& x) override { return gelu(x, form_); }
  Shape output_shape(const Shape& input) const override { return input; }

 private:
  GeluForm form_;
};

/// Maximum of each window. The stride defaults to the kernel's width.
class MaxPool2d final : public Module {
 public:
  explicit MaxPool2d(std::int64_t kernel) : MaxPool2d(Window{kernel, kernel, 0}) {}
  explicit MaxPool2d(const Window& window) : window_(window) {}
  Tensor forward(const Tensor& x) override { return max_pool2d(x, window_); }
  Shape output_shape(const Shape& input) const override { return max_pool2d_shape(input, window_); }

 private:
  Window window_;
};

/// Mean over each plane: [N, C, H, W] to [N, C].
class GlobalAveragePool final : public Module {
 public:
  Tensor forward(const Tensor& x) override { return global_average_pool(x); }
  Shape output_shape(const Shape& input) const override { return global_average_pool_shape(input); }
};

/// [N, …] to [N, product of the other extents].
class Flatten final : public Module {
 public:
  Tensor forward(const Tensor& x) override { return flatten(x); }
  Shape output_shape(const Shape& input) const override { return flatten_shape(input); }
};

/// Mean over the tokens of each sample: [N, T, C] to [N, C].
class TokenMean final : public Module {
 public:
  Tensor forward(const Tensor& x) override { return token_mean(x); }
  Shape output_shape(const Shape& input) const override { return token_mean_shape(input); }
};

/// Softmax over the last dimension of […, C].
class Softmax final : public Module {
 public:
  Tensor forward(const Tensor& x) override { return softmax(x); }
  Shape output_shape(const Shape& input) const override { return rows_shape("softmax", input); }
};

/// Layer norm over the last dimension of […, width].
class LayerNorm final : public Module {
 public:
  explicit LayerNorm(std::int64_t width, double epsilon = 1e-5);
  Tensor forward(const Tensor& x) override;
  Shape output_shape(const Shape& input) const override;

 private:
  double epsilon_;
};

/// Batch norm over [N, channels, H, W]. In training it normalises by the statistics of the batch and moves the buffers
/// running_mean and running_variance towards them; in evaluation it normalises by these buffers.
class BatchNorm2d final : public Module {
 public:
  explicit BatchNorm2d(std::int64_t channels, double momentum = 0.1, double epsilon = 1e-5);
  Tensor forward(const Tensor& x) override { return forward(x, Activation::none); }
  /// Returns activation(forward(x) + addend), computed in one pass; `addend` is like x, or undefined.
  Tensor forward(const Tensor& x, Activation activation, const Tensor& addend = {});
  Shape output_shape(const Shape& input) const override;
  /// From now on treats each batch as part of a larger one; see BatchNormSettings::sum_over_ranks. An empty function
  /// ends this.
  void share_batch(std::function<void(Tensor& tensor)> sum_over_ranks) { sum_over_ranks_ = std::move(sum_over_ranks); }

 private:
  double momentum_;
  double epsilon_;
  std::function<void(Tensor& tensor)> sum_over_ranks_;
};

}  // namespace stagecoach
