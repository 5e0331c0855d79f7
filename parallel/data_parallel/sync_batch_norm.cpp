#include "parallel/data_parallel/sync_batch_norm.h"

#include "nn/layers.h"

namespace stagecoach {

int synchronise_batch_norm(Module& model, Communicator& comm) {
  int layers = 0;
  if (auto* norm = dynamic_cast<BatchNorm2d*>(&model); norm != nullptr) {
    if (comm.size() > 1) {
      norm->share_batch([&comm](Tensor& tensor) { comm.all_reduce(tensor); });
    }
    ++layers;
  }
  for (const auto& [name, child] : model.children()) {
    layers += synchronise_batch_norm(*child, comm);
  }
  return layers;
}

int batch_norm_layers(const Module& model) {
  int layers = dynamic_cast<const BatchNorm2d*>(&model) != nullptr ? 1 : 0;
  for (const auto& [name, child] : model.children()) {
    layers += batch_norm_layers(*child);
  }
  return layers;
}

}  // namespace stagecoach
