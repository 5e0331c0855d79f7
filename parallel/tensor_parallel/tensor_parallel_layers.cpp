#include "parallel/tensor_parallel/tensor_parallel_layers.h"

#include <functional>

#include "core/ops.h"
#include "core/ops/output_shapes.h"
#include "nn/layers.h"
#include "nn/transformer.h"
#include "parallel/tensor_parallel/add_bias.h"
#include "parallel/tensor_parallel/class_parallel_loss.h"
#include "parallel/tensor_parallel/conjugate.h"
#include "parallel/tensor_parallel/overlap.h"
#include "parallel/tensor_parallel/require_divisible.h"

namespace stagecoach {
namespace {

void note(const TensorGroup& group, const Exchange& exchange) {
  if (group.exchanges != nullptr) {
    group.exchanges->push_back(exchange);
  }
}

Tensor shape_only(const Shape& shape) { return Tensor::empty(shape, DType::float32, Device{DeviceType::meta}); }

/// A layer that one group of ranks computes together.
class ParallelModule : public Module {
 public:
  explicit ParallelModule(const TensorGroup& group, SequenceParallel sequence = SequenceParallel::no)
      : group_(group), shares_tokens_(sequence == SequenceParallel::yes) {}

 protected:
  int ranks() const { return group_.ranks; }
  const TensorGroup& group() const { return group_; }
  bool shares_tokens() const { return shares_tokens_; }
  /// Returns this rank's slice of a tensor of shape `whole`, cut along dimension `dim`.
  TensorSlice slice(const Shape& whole, int dim, int sections = 1) const {
    return {.whole = whole, .dim = dim, .parts = group_.ranks, .index = group_.rank, .sections = sections};
  }
  /// Returns this rank's part of a layer that is cut by outputs, which `compute` computes from the x of all ranks.
  Tensor compute_part(const Tensor& x, const std::function<Tensor(const Tensor& x)>& compute) const {
    if (shares_tokens_) {
      return compute(gather_tokens(x, group_));
    }
    return group_.comm_thread != nullptr || group_.plans_overlap ? with_overlapped_sum(compute(x), group_.comm_thread)
                                                                 : compute(copy_to_ranks(x, group_));
  }
  /// Returns the sum of what the ranks have computed.
  Tensor leave(Tensor x) const {
    return shares_tokens_ ? sum_and_scatter_tokens(x, group_) : sum_over_ranks(std::move(x), group_);
  }
  // The shapes of their results.
  Shape entering(const Shape& x) const {
    const Shape all = shares_tokens_ ? x.with(1, x[1] * group_.ranks) : x;
    note(group_, {.forward = shares_tokens_ ? 1 : 0, .backward = shares_tokens_ ? 1 : 2, .numel = all.numel()});
    return all;
  }
  /// Notes the gradients of the layer's parameters, which with_overlapped_sum computes beside the exchange just noted.
  void note_beside(const KernelCost& gradients) const {
    if (group_.exchanges != nullptr && !shares_tokens_) {
      group_.exchanges->back().beside = gradients;
    }
  }
  Shape leaving(const Shape& x) const {
    note(group_, {.forward = shares_tokens_ ? 1 : 2, .backward = shares_tokens_ ? 1 : 0, .numel = x.numel()});
    return shares_tokens_ ? own_tokens_shape(x, group_.ranks) : x;
  }
  /// Notes the sum of a small parameter's gradients.
  void note_gradient(const Shape& parameter) const {
    note(group_, {.backward = 2, .numel = parameter.numel(), .of_weights = true});
  }

 private:
  TensorGroup group_;
  bool shares_tokens_;
};

class LinearByOutputs : public ParallelModule {
 public:
  LinearByOutputs(std::int64_t inputs, std::int64_t outputs, int sections, const LinearInit& init,
                  const TensorGroup& group, SequenceParallel sequence)
      : ParallelModule(group, sequence) {
    require_divisible("features", outputs / sections, ranks());
    add_parameter("weight", slice({outputs, inputs}, 0, sections), init.weight);
    add_parameter("bias", slice({outputs}, 0, sections), init.bias);
  }
  /// […, inputs] to […, outputs / ranks]
  Tensor forward(const Tensor& x) override {
    return compute_part(x, [&](const Tensor& all) { return linear(all, own("weight"), own("bias")); });
  }
  Shape output_shape(const Shape& input) const override {
    const Shape x = entering(input);
    const Shape y = linear_shape(x, own_shape("weight"));
    const auto rows = [](const Shape& shape) { return Shape{shape.numel() / shape[-1], shape[-1]}; };
    Tensor weight = shape_only(own_shape("weight"));
    Tensor bias = shape_only(own_shape("bias"));
    note_beside(kernel_costs().linear_grad_weight(shape_only(rows(y)), shape_only(rows(x)), weight, bias));
    return y;
  }
};

/// The last layer, with the exchange of the loss that takes its logits. Its input is whole, even where ranks share the
/// tokens between other layers.
class LinearByClasses final : public LinearByOutputs {
 public:
  LinearByClasses(std::int64_t inputs, std::int64_t classes, const LinearInit& init, const TensorGroup& group)
      : LinearByOutputs(inputs, classes, 1, init, group, SequenceParallel::no) {}
  /// [N, …, inputs] to [N, …, classes / ranks]
  Shape output_shape(const Shape& input) const override {
    const Shape logits = LinearByOutputs::output_shape(input);
    note(group(), {.forward = 1, .numel = ranks() * (input.numel() / input[-1]) * kClassStatistics});
    return logits;
  }
};

class LinearByInputs final : public ParallelModule {
 public:
  LinearByInputs(std::int64_t inputs, std::int64_t outputs, const LinearInit& init, const TensorGroup& group,
                 SequenceParallel sequence)
      : ParallelModule(group, sequence) {
    require_divisible("features", inputs, ranks());
    add_parameter("weight", slice({outputs, inputs}, 1), init.weight);
    add_parameter("bias", Shape{outputs}, init.bias);
  }
  /// […, inputs / ranks] to […, outputs]. The bias is added once, to the sum: by all ranks to all tokens or, if they
  /// share them, by each to its own. Then its gradient is a sum over the ranks.
  Tensor forward(const Tensor& x) override {
    const Tensor y = leave(linear(x, own("weight")));
    return add_to_rows(y, shares_tokens() ? copy_to_ranks(own("bias"), group()) : own("bias"));
  }
  Shape output_shape(const Shape& input) const override {
    const Shape shape = leaving(linear_shape(input, own_shape("weight")));
    if (shares_tokens()) {
      note_gradient(own_shape("bias"));
    }
    return shape;
  }
};

class Conv2dByOutputs final : public ParallelModule {
 public:
  Conv2dByOutputs(std::int64_t inputs, std::int64_t outputs, std::int64_t kernel, const Conv2dSettings& settings,
                  const TensorGroup& group)
      : ParallelModule(group), settings_(settings) {
    require_divisible("channels", outputs, ranks());
    const Init init = fan_in_init(inputs * kernel * kernel);
    add_parameter("weight", slice({outputs, inputs, kernel, kernel}, 0), init);
    add_parameter("bias", slice({outputs}, 0), init);
  }
  /// [N, inputs, H, W] to [N, outputs / ranks, P, Q]
  Tensor forward(const Tensor& x) override {
    return compute_part(x, [&](const Tensor& all) { return conv2d(all, own("weight"), own("bias"), settings_); });
  }
  Shape output_shape(const Shape& input) const override {
    const Shape x = entering(input);
    const Shape y = conv2d_shape(x, own_shape("weight"), settings_);
    Tensor weight = shape_only(own_shape("weight"));
    Tensor bias = shape_only(own_shape("bias"));
    const Window window{own_shape("weight")[2], settings_.stride, settings_.padding};
    note_beside(kernel_costs().conv2d_grad_weight(shape_only(y), shape_only(x), window, weight, bias));
    return y;
  }

 private:
  Conv2dSettings settings_;
};

class Conv2dByInputs final : public ParallelModule {
 public:
  Conv2dByInputs(std::int64_t inputs, std::int64_t outputs, std::int64_t kernel, const Conv2dSettings& settings,
                 const TensorGroup& group)
      : ParallelModule(group), settings_(settings) {
    require_divisible("channels", inputs, ranks());
    const Init init = fan_in_init(inputs * kernel * kernel);
    add_parameter("weight", slice({outputs, inputs, kernel, kernel}, 1), init);
    add_parameter("bias", Shape{outputs}, init);
  }
  /// [N, inputs / ranks, H, W] to [N, outputs, P, Q]
  Tensor forward(const Tensor& x) override {
    return add_to_channels(leave(conv2d(x, own("weight"), {}, settings_)), own("bias"));
  }
  Shape output_shape(const Shape& input) const override {
    return leaving(conv2d_shape(input, own_shape("weight"), settings_));
  }

 private:
  Conv2dSettings settings_;
};

// The layers between the pairs, where ranks share the tokens.

class OwnTokensEmbedding final : public PatchEmbedding {
 public:
  OwnTokensEmbedding(std::int64_t image_size, std::int64_t patch, std::int64_t width, const TensorGroup& group)
      : PatchEmbedding(image_size, patch, width), group_(group) {}
  Tensor forward(const Tensor& x) override { return own_tokens(PatchEmbedding::forward(x), group_); }
  Shape output_shape(const Shape& input) const override {
    const Shape all = PatchEmbedding::output_shape(input);
    note(group_, {.backward = 1, .numel = all.numel()});
    return own_tokens_shape(all, group_.ranks);
  }

 private:
  TensorGroup group_;
};

class OwnTokensNorm final : public ParallelModule {
 public:
  OwnTokensNorm(std::int64_t width, const TensorGroup& group) : ParallelModule(group) {
    add_parameter("weight", Shape{width}, Init::constant(1));
    add_parameter("bias", Shape{width}, Init::constant(0));
  }
  Tensor forward(const Tensor& x) override {
    return layer_norm(x, copy_to_ranks(own("weight"), group()), copy_to_ranks(own("bias"), group()));
  }
  Shape output_shape(const Shape& input) const override {
    note_gradient(own_shape("weight"));
    note_gradient(own_shape("bias"));
    return layer_norm_shape(input, own_shape("weight"));
  }
};

class AllTokensMean final : public ParallelModule {
 public:
  explicit AllTokensMean(const TensorGroup& group) : ParallelModule(group, SequenceParallel::yes) {}
  Tensor forward(const Tensor& x) override { return token_mean(all_tokens(x, group())); }
  Shape output_shape(const Shape& input) const override {
    const Shape all = input.with(1, input[1] * ranks());
    note(group(), {.forward = 1, .numel = all.numel()});
    return token_mean_shape(all);
  }
};

}  // namespace

std::shared_ptr<Module> TensorParallelLayers::make_linear(std::int64_t inputs, std::int64_t outputs, Cut cut,
                                                          int sections, const LinearInit& init) const {
  switch (cut) {
    case Cut::outputs:
      return std::make_shared<LinearByOutputs>(inputs, outputs, sections, init, group_, sequence_);
    case Cut::inputs:
      return std::make_shared<LinearByInputs>(inputs, outputs, init, group_, sequence_);
    case Cut::none:
      break;
  }
  return std::make_shared<Linear>(inputs, outputs, init);
}

std::shared_ptr<Module> TensorParallelLayers::make_linear_by_classes(std::int64_t inputs, std::int64_t classes,
                                                                     const LinearInit& init) const {
  require_divisible("classes", classes, group_.ranks);
  return std::make_shared<LinearByClasses>(inputs, classes, init, group_);
}

std::shared_ptr<Module> TensorParallelLayers::conv2d(std::int64_t inputs, std::int64_t outputs, std::int64_t kernel,
                                                     Cut cut, const Conv2dSettings& settings) const {
  switch (cut) {
    case Cut::outputs:
      return std::make_shared<Conv2dByOutputs>(inputs, outputs, kernel, settings, group_);
    case Cut::inputs:
      return std::make_shared<Conv2dByInputs>(inputs, outputs, kernel, settings, group_);
    case Cut::none:
      break;
  }
  return LayerFactory::conv2d(inputs, outputs, kernel, cut, settings);
}

std::int64_t TensorParallelLayers::heads(std::int64_t all) const {
  require_divisible("heads", all, group_.ranks);
  return all / group_.ranks;
}

std::shared_ptr<Module> TensorParallelLayers::patch_embedding(std::int64_t image_size, std::int64_t patch,
                                                              std::int64_t width) const {
  if (sequence_ == SequenceParallel::no) {
    return LayerFactory::patch_embedding(image_size, patch, width);
  }
  require_divisible("tokens", (image_size / patch) * (image_size / patch), group_.ranks);
  return std::make_shared<OwnTokensEmbedding>(image_size, patch, width, group_);
}

std::shared_ptr<Module> TensorParallelLayers::token_norm(std::int64_t width) const {
  return sequence_ == SequenceParallel::no ? LayerFactory::token_norm(width)
                                           : std::make_shared<OwnTokensNorm>(width, group_);
}

std::shared_ptr<Module> TensorParallelLayers::token_mean() const {
  return sequence_ == SequenceParallel::no ? LayerFactory::token_mean() : std::make_shared<AllTokensMean>(group_);
}

}  // namespace stagecoach
