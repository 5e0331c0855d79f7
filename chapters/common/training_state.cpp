#include "chapters/common/training_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "nn/weights.h"

namespace stagecoach {

StateContents contents_of(const TrainingState& state) {
  const auto infos = [](const NamedTensors& tensors) {
    std::vector<TensorInfo> found;
    for (const auto& [name, tensor] : tensors) {
      found.push_back({name, tensor.dtype(), tensor.shape()});
    }
    return found;
  };
  return {infos(state.weights), infos(state.optimizer), infos(state.memory)};
}

StatePart no_part() {
  const auto none = [](const std::string&) { return false; };
  return {none, none, none, {}};
}

StatePart part_of_rank(const LayerRanks& layers, int rank, int shard, Device device) {
  const auto is_mine = [layers, rank](const std::string& name) { return is_of_rank(layers, rank, name); };
  const auto is_mine_or_of_no_layer = [layers, is_mine](const std::string& name) {  // such as the count of steps
    const auto is_of_layer = [&](const auto& of_layer) { return name.starts_with(of_layer.first + "."); };
    return is_mine(name) || std::none_of(layers.begin(), layers.end(), is_of_layer);
  };
  const auto is_mine_of_shard = [is_mine, prefix = fmt::format("{}.", shard)](const std::string& name) {
    return name.starts_with(prefix) && is_mine(name.substr(prefix.size()));
  };
  return {is_mine, is_mine_or_of_no_layer, is_mine_of_shard, device.type == DeviceType::cpu ? device : Device{}};
}

TrainingState state_of_rank(const LayerRanks& layers, int rank, const Module& model, const Optimizer& optimizer) {
  TrainingState state{
      tensors_of_rank(layers, rank, weights_of(model)), tensors_of_rank(layers, rank, optimizer.state()), {}};
  if (!layers.empty() && rank == 0) {
    state.optimizer.push_back(optimizer.state().back());  // the count of steps, the same everywhere
  }
  return state;
}

std::set<int> ranks_with_state(const LayerRanks& layers) {
  std::set<int> ranks{0};
  for (const auto& [layer, rank] : layers) {
    ranks.insert(rank);
  }
  return ranks;
}

void take_state(const LayerRanks& layers, int rank, const TrainingState& state, const Module& model,
                Optimizer& optimizer, const std::string& what) {
  copy_by_name(tensors_of_rank(layers, rank, state.weights), weights_of(model), what);
  NamedTensors mine = tensors_of_rank(layers, rank, state.optimizer);
  if (!layers.empty()) {  // the count of steps belongs to no layer
    const std::string count = optimizer.state().back().first;
    std::copy_if(state.optimizer.begin(), state.optimizer.end(), std::back_inserter(mine),
                 [&](const auto& named) { return named.first == count; });
  }
  optimizer.load_state(mine);
}

NamedTensors memory_of_shard(int shard, const CompressionMemory& memory) {
  NamedTensors named;
  for (const auto& [name, tensor] : memory) {
    named.emplace_back(fmt::format("{}.{}", shard, name), tensor);
  }
  return named;
}

void take_memory(const LayerRanks& layers, int rank, int shard, const TrainingState& state, Device device,
                 CompressionMemory& memory) {
  const NamedTensors of_shard = below(fmt::format("{}.", shard), state.memory);
  for (const auto& [name, tensor] : tensors_of_rank(layers, rank, of_shard)) {
    memory[name] = tensor.to(device);
  }
}

}  // namespace stagecoach
