#include "nn/sequential.h"

#include "core/base/error.h"
#include "nn/layers.h"

namespace stagecoach {

Sequential& Sequential::add(const std::string& name, std::shared_ptr<Module> layer) {
  add_child(name, std::move(layer));
  return *this;
}

Tensor Sequential::forward(const Tensor& x) {
  Tensor y = x;
  for (int i = 0; i < size(); ++i) {
    auto* norm = dynamic_cast<BatchNorm2d*>(layer(i).get());
    if (norm != nullptr && i + 1 < size() && dynamic_cast<ReLU*>(layer(i + 1).get()) != nullptr) {
      y = norm->forward(y, Activation::relu);  // in one pass, with the bytes of two
      ++i;
    } else {
      y = layer(i)->forward(y);
    }
  }
  return y;
}

Shape Sequential::output_shape(const Shape& input) const {
  Shape shape = input;
  for (const auto& [name, layer] : children()) {
    try {
      shape = layer->output_shape(shape);
    } catch (const Error& error) {
      throw Error(fmt::format("layer '{}': {}", name, error.what()));
    }
  }
  return shape;
}

std::shared_ptr<Sequential> Sequential::slice(int begin, int end) const {
  STAGECOACH_CHECK(0 <= begin && begin <= end && end <= size(),
                   "slice: expected layers within 0 to {2}, got {0} to {1}", begin, end, size());
  auto part = std::make_shared<Sequential>();
  for (int i = begin; i < end; ++i) {
    part->add(name(i), layer(i));
  }
  return part;
}

const Module::Child& Sequential::at(int index) const {
  STAGECOACH_CHECK(0 <= index && index < size(),
                   "sequential: expected a layer index of at least 0 and less than {}, got {}", size(), index);
  return children()[static_cast<std::size_t>(index)];
}

}  // namespace stagecoach
