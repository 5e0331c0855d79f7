#include "nn/weights.h"

#include "nn/safetensors.h"

namespace stagecoach {

NamedTensors weights_of(const Module& module) {
  NamedTensors weights = module.named_parameters();
  for (auto& buffer : module.named_buffers()) {
    weights.push_back(std::move(buffer));
  }
  return weights;
}

void save_weights(const std::string& path, const Module& module) { save_tensors(path, {weights_of(module), {}}); }

void load_weights(const std::string& path, Module& module) {
  copy_by_name(load_tensors(path).tensors, weights_of(module), "'" + path + "'");
}

}  // namespace stagecoach
