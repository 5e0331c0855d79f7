#pragma once
/// @file
/// Layers in a row: what a pipeline cuts into stages.

#include "nn/module.h"

namespace stagecoach {

class Sequential final : public Module {
 public:
  /// Appends a layer. Its name must be new here; its parameters are called "<name>.weight" and so on.
  Sequential& add(const std::string& name, std::shared_ptr<Module> layer);

  /// Each layer in turn; without layers x itself.
  Tensor forward(const Tensor& x) override;
  Shape output_shape(const Shape& input) const override;

  int size() const { return static_cast<int>(children().size()); }
  const std::shared_ptr<Module>& layer(int index) const { return at(index).second; }
  const std::string& name(int index) const { return at(index).first; }

  /// Layers begin … end-1 under their names here. The slice shares them, so it may be materialized, trained and
  /// saved in place of the whole; it sets their mode (train) too.
  std::shared_ptr<Sequential> slice(int begin, int end) const;

 private:
  const Child& at(int index) const;
};

}  // namespace stagecoach
