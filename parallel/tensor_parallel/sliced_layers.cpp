#include "parallel/tensor_parallel/sliced_layers.h"

#include <functional>
#include <vector>

#include "core/ops.h"
#include "core/ops/output_shapes.h"
#include "nn/layers.h"
#include "parallel/tensor_parallel/add_bias.h"
#include "parallel/tensor_parallel/require_divisible.h"

namespace stagecoach {
namespace {

/// Computes the slices from the last to the first. A backward runs in the reverse order, from the first to the last,
/// and so adds the slices' gradients of their common input in the order of the slices.
std::vector<Tensor> slice_by_slice(int slices, const std::function<Tensor(int slice)>& compute) {
  std::vector<Tensor> results(static_cast<std::size_t>(slices));
  for (int slice = slices - 1; slice >= 0; --slice) {
    results[static_cast<std::size_t>(slice)] = compute(slice);
  }
  return results;
}

/// Returns the sum, added in the order of the slices.
Tensor sum_of(const std::vector<Tensor>& parts) {
  Tensor sum = parts.front();
  for (std::size_t i = 1; i < parts.size(); ++i) {
    sum = add(sum, parts[i]);
  }
  return sum;
}

/// Returns part `slice` of `slices` of the rows of w [O, …], in each of `sections` equal sections.
Tensor rows_of(const Tensor& w, int slice, int slices, int sections = 1) {
  const std::int64_t section = w.size(0) / sections;
  const std::int64_t rows = section / slices;
  if (sections == 1) {
    return w.narrow(slice * rows, rows);
  }
  std::vector<Tensor> parts;
  for (int i = 0; i < sections; ++i) {
    parts.push_back(w.narrow(i * section + slice * rows, rows));
  }
  return cat(parts);
}

/// Returns part `slice` of `slices` of dimension 1 of x [N, C, …].
Tensor columns_of(const Tensor& x, int slice, int slices) {
  const Tensor flat = flatten(x);
  const std::int64_t columns = flat.size(1) / slices;
  return narrow_columns(flat, slice * columns, columns).reshape(x.shape().with(1, x.size(1) / slices));
}

/// Returns the slices' features […, c] side by side: […, all c], section by section.
Tensor joined_features(const std::vector<Tensor>& slices, int sections) {
  if (sections == 1) {
    return cat_columns(slices);
  }
  const std::int64_t columns = slices.front().size(-1) / sections;
  std::vector<Tensor> parts;
  for (int section = 0; section < sections; ++section) {
    for (const Tensor& slice : slices) {
      parts.push_back(narrow_columns(slice, section * columns, columns));
    }
  }
  return cat_columns(parts);
}

/// Returns the slices' channels (or tokens), dimension 1 of [N, c, …], one after another.
Tensor joined_channels(const std::vector<Tensor>& slices) {
  std::vector<Tensor> flat;
  std::int64_t channels = 0;
  for (const Tensor& slice : slices) {
    flat.push_back(flatten(slice));
    channels += slice.size(1);
  }
  return cat_columns(flat).reshape(slices.front().shape().with(1, channels));
}

/// Computes a function of the tokens of each slice, x [N, T / slices, C], and of parameters, whose gradients are then
/// sums over the slices of sums over a slice's own tokens.
Tensor on_token_slices(const Tensor& x, int slices, const std::vector<Tensor>& parameters,
                       const std::function<Tensor(const Tensor& x, const std::vector<Tensor>& parameters)>& compute) {
  // The views collect the sums over the slices before they are added to the gradients of earlier micro-batches.
  std::vector<Tensor> views;
  for (const Tensor& parameter : parameters) {
    views.push_back(parameter.reshape({-1}));
  }
  return joined_channels(slice_by_slice(slices, [&](int i) { return compute(columns_of(x, i, slices), views); }));
}

class SlicedLinear final : public Module {
 public:
  SlicedLinear(std::int64_t inputs, std::int64_t outputs, Cut cut, int sections, const LinearInit& init, int slices,
               SequenceParallel sequence)
      : cut_(cut), sections_(sections), slices_(slices), sequence_(sequence) {
    require_divisible("features", cut == Cut::outputs ? outputs / sections : inputs, slices);
    add_parameter("weight", Shape{outputs, inputs}, init.weight);
    add_parameter("bias", Shape{outputs}, init.bias);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor& weight = own("weight");
    const Tensor& bias = own("bias");
    if (cut_ == Cut::outputs) {
      const auto features = slice_by_slice(slices_, [&](int i) {
        return linear(x, rows_of(weight, i, slices_, sections_), rows_of(bias, i, slices_, sections_));
      });
      return joined_features(features, sections_);
    }
    const std::int64_t inputs = x.size(-1) / slices_;
    const auto parts = slice_by_slice(
        slices_, [&](int i) { return linear(narrow_columns(x, i * inputs, inputs), columns_of(weight, i, slices_)); });
    return with_bias(sum_of(parts));
  }
  Shape output_shape(const Shape& input) const override { return linear_shape(input, own_shape("weight")); }

 private:
  Tensor with_bias(const Tensor& y) const {
    const Tensor& bias = own("bias");
    return sequence_ == SequenceParallel::no
               ? add_to_rows(y, bias)
               : on_token_slices(y, slices_, {bias}, [](const Tensor& tokens, const std::vector<Tensor>& parameters) {
                   return add_to_rows(tokens, parameters[0]);
                 });
  }

  Cut cut_;
  int sections_;
  int slices_;
  SequenceParallel sequence_;
};

class SlicedConv2d final : public Module {
 public:
  SlicedConv2d(std::int64_t inputs, std::int64_t outputs, std::int64_t kernel, Cut cut, const Conv2dSettings& settings,
               int slices)
      : cut_(cut), settings_(settings), slices_(slices) {
    require_divisible("channels", cut == Cut::outputs ? outputs : inputs, slices);
    const Init init = fan_in_init(inputs * kernel * kernel);
    add_parameter("weight", Shape{outputs, inputs, kernel, kernel}, init);
    add_parameter("bias", Shape{outputs}, init);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor& weight = own("weight");
    const Tensor& bias = own("bias");
    if (cut_ == Cut::outputs) {
      return joined_channels(slice_by_slice(slices_, [&](int i) {
        return conv2d(x, rows_of(weight, i, slices_), rows_of(bias, i, slices_), settings_);
      }));
    }
    const auto parts = slice_by_slice(slices_, [&](int i) {
      return conv2d(columns_of(x, i, slices_), columns_of(weight, i, slices_), {}, settings_);
    });
    return add_to_channels(sum_of(parts), bias);
  }
  Shape output_shape(const Shape& input) const override { return conv2d_shape(input, own_shape("weight"), settings_); }

 private:
  Cut cut_;
  Conv2dSettings settings_;
  int slices_;
};

class SlicedTokenNorm final : public Module {
 public:
  SlicedTokenNorm(std::int64_t width, int slices) : slices_(slices) {
    add_parameter("weight", Shape{width}, Init::constant(1));
    add_parameter("bias", Shape{width}, Init::constant(0));
  }
  Tensor forward(const Tensor& x) override {
    return on_token_slices(x, slices_, {own("weight"), own("bias")},
                           [](const Tensor& tokens, const std::vector<Tensor>& parameters) {
                             return layer_norm(tokens, parameters[0], parameters[1]);
                           });
  }
  Shape output_shape(const Shape& input) const override { return layer_norm_shape(input, own_shape("weight")); }

 private:
  int slices_;
};

}  // namespace

std::shared_ptr<Module> SlicedLayers::make_linear(std::int64_t inputs, std::int64_t outputs, Cut cut, int sections,
                                                  const LinearInit& init) const {
  if (cut == Cut::none) {
    return std::make_shared<Linear>(inputs, outputs, init);
  }
  return std::make_shared<SlicedLinear>(inputs, outputs, cut, sections, init, slices_, sequence_);
}

std::shared_ptr<Module> SlicedLayers::make_linear_by_classes(std::int64_t inputs, std::int64_t classes,
                                                             const LinearInit& init) const {
  require_divisible("classes", classes, slices_);
  return make_linear(inputs, classes, Cut::outputs, 1, init);
}

std::shared_ptr<Module> SlicedLayers::conv2d(std::int64_t inputs, std::int64_t outputs, std::int64_t kernel, Cut cut,
                                             const Conv2dSettings& settings) const {
  if (cut == Cut::none) {
    return LayerFactory::conv2d(inputs, outputs, kernel, cut, settings);
  }
  return std::make_shared<SlicedConv2d>(inputs, outputs, kernel, cut, settings, slices_);
}

std::int64_t SlicedLayers::heads(std::int64_t all) const {
  require_divisible("heads", all, slices_);
  return all;
}

std::shared_ptr<Module> SlicedLayers::token_norm(std::int64_t width) const {
  return sequence_ == SequenceParallel::no ? LayerFactory::token_norm(width)
                                           : std::make_shared<SlicedTokenNorm>(width, slices_);
}

}  // namespace stagecoach
