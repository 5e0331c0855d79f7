#include "chapters/common/training_state.h"

#include "nn/weights.h"

namespace stagecoach {

TrainingState gather_state(Communicator& comm, const LayerRanks& layers, const Module& model,
                           const Optimizer& optimizer) {
  if (layers.empty()) {
    return {weights_of(model), optimizer.state()};
  }
  TrainingState state{gather_tensors(comm, layers, model.named_parameters()),
                      gather_tensors(comm, layers, optimizer.state())};
  const NamedTensors buffers = gather_tensors(comm, layers, model.named_buffers());
  state.weights.insert(state.weights.end(), buffers.begin(), buffers.end());
  state.optimizer.push_back(optimizer.state().back());  // the count of steps, the same everywhere
  return state;
}

void take_state(const LayerRanks& layers, int rank, const TrainingState& state, const Module& model,
                Optimizer& optimizer, const std::string& what) {
  copy_by_name(tensors_of_rank(layers, rank, state.weights), weights_of(model), what);
  NamedTensors mine = tensors_of_rank(layers, rank, state.optimizer);
  if (!layers.empty() && !state.optimizer.empty()) {
    mine.push_back(state.optimizer.back());  // the count of steps belongs to no layer
  }
  optimizer.load_state(mine);
}

}  // namespace stagecoach
