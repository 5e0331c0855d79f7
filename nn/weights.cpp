#include "nn/weights.h"

#include <algorithm>
#include <vector>

#include "nn/safetensors.h"

namespace stagecoach {

namespace {

/// Returns a float16 tensor of a file as float32, which is exact, and any other as it is.
Tensor widened(const Tensor& tensor) {
  if (tensor.dtype() != DType::float16) {
    return tensor;
  }
  const std::vector<Half> halves = tensor.to_vector<Half>();
  std::vector<float> floats(halves.size());
  std::transform(halves.begin(), halves.end(), floats.begin(), to_float);
  return Tensor::from(floats, tensor.shape());
}

}  // namespace

NamedTensors weights_of(const Module& module) {
  NamedTensors weights = module.named_parameters();
  for (auto& buffer : module.named_buffers()) {
    weights.push_back(std::move(buffer));
  }
  return weights;
}

void save_weights(const std::string& path, const Module& module) { save_tensors(path, {weights_of(module), {}}); }

void load_weights(const std::string& path, Module& module) {
  NamedTensors tensors = load_tensors(path).tensors;
  for (auto& [name, tensor] : tensors) {
    tensor = widened(tensor);
  }
  copy_by_name(tensors, weights_of(module), "'" + path + "'");
}

}  // namespace stagecoach
