#include "parallel/data_parallel/sync_batch_norm.h"

#include "nn/layers.h"

namespace stagecoach {

void synchronise_batch_norm(Module& model, Communicator& comm) {
  if (auto* norm = dynamic_cast<BatchNorm2d*>(&model); norm != nullptr && comm.size() > 1) {
    norm->share_batch([&comm](Tensor& tensor) { comm.all_reduce(tensor); });
  }
  for (const auto& [name, child] : model.children()) {
    synchronise_batch_norm(*child, comm);
  }
}

int batch_norm_layers(const Module& model) {
  int layers = dynamic_cast<const BatchNorm2d*>(&model) != nullptr ? 1 : 0;
  for (const auto& [name, child] : model.children()) {
    layers += batch_norm_layers(*child);
  }
  return layers;
}

}  // namespace stagecoach
