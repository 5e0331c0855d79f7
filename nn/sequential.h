#pragma once
/// @file
/// A sequence of layers, which a pipeline splits into stages.

#include "nn/module.h"

namespace stagecoach {

class Sequential final : public Module {
 public:
  /// Appends a layer. Its name must be unique here; its parameters are named "<name>.weight" and so on.
  Sequential& add(const std::string& name, std::shared_ptr<Module> layer);

  /// Runs each layer on the output of the layer before it. Without layers returns x itself.
  Tensor forward(const Tensor& x) override;
  Shape output_shape(const Shape& input) const override;

  int size() const { return static_cast<int>(children().size()); }
  const std::shared_ptr<Module>& layer(int index) const { return at(index).second; }
  const std::string& name(int index) const { return at(index).first; }

  /// Returns layers begin … end-1 under the same names. The slice shares the layers, so it may be materialized, trained
  /// and saved instead of the whole model; its train() also sets their mode.
  std::shared_ptr<Sequential> slice(int begin, int end) const;

 private:
  const Child& at(int index) const;
};

}  // namespace stagecoach
