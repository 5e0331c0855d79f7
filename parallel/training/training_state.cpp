#include "parallel/training/training_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <sstream>
#include <utility>

#include "nn/weights.h"
#include "parallel/tensor_parallel/join_slices.h"

namespace stagecoach {
namespace {

constexpr const char* kModel = "model.";
constexpr const char* kOptimizer = "optimizer.";

void append(TrainingState& state, const std::string& prefix, const NamedTensors& some) {
  for (const auto& [name, tensor] : some) {
    state.emplace_back(prefix + name, tensor);
  }
}

/// Returns what is before and after the first dot: "model" and "fc.weight" for "model.fc.weight".
std::pair<std::string, std::string> split_name(const std::string& name) {
  const std::size_t dot = std::min(name.find('.'), name.size());
  return {name.substr(0, dot), name.substr(std::min(dot + 1, name.size()))};
}

bool is_of_model_or_optimizer(const std::string& name) {
  return name.starts_with(kModel) || name.starts_with(kOptimizer);
}

/// Returns "weights conv1.weight float32[6, 3, 5, 5]" for a tensor "model.conv1.weight".
std::string line_of(const std::string& name, DType dtype, const Shape& shape) {
  const auto [kind, rest] = split_name(name);
  return fmt::format("{} {} {}{}", kind == "model" ? "weights" : kind, rest, name_of(dtype), to_string(shape));
}

/// Returns a line for each tensor of the weights and of the optimizer.
StateOutline lines_of(const StateContents& state) {
  StateOutline lines;
  for (const TensorInfo& info : state) {
    if (is_of_model_or_optimizer(info.name)) {
      lines.insert(line_of(info.name, info.dtype, info.shape));
    }
  }
  return lines;
}

/// Returns the lines that are in `a` but not in `b`, as "lacks X and 3 more"; empty if there is nothing.
std::string missing_from(const StateOutline& a, const StateOutline& b, const char* verb) {
  std::vector<std::string> missing;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(missing));
  if (missing.empty()) {
    return "";
  }
  const std::string more = missing.size() > 1 ? fmt::format(" and {} more", missing.size() - 1) : "";
  return fmt::format("{} {}{}", verb, missing.front(), more);
}

}  // namespace

StatePart part_of_rank(const LayerRanks& layers, int rank, Device device) {
  const auto is_mine = [=](const std::string& name, const std::string& prefix) {
    return name.starts_with(prefix) && is_of_rank(layers, rank, name.substr(prefix.size()));
  };
  const auto is_of_no_layer = [layers](const std::string& name) {  // such as the count of steps
    return name.starts_with(kOptimizer) && layer_of(layers, split_name(name).second) == nullptr;
  };
  const auto keep = [=](const std::string& name) {
    return is_mine(name, kModel) || is_mine(name, kOptimizer) || is_of_no_layer(name);
  };
  return {keep, device.type == DeviceType::cpu ? device : Device{}};
}

WholeLayers whole_layers(const RankRole& role, const Module& model, const Optimizer& optimizer) {
  if (role.sharded != nullptr) {
    return role.sharded->whole_layers(optimizer);
  }
  WholeLayers mine{model.named_parameters(), model.named_buffers(), optimizer.state()};
  if (role.tensor_group == nullptr) {
    return mine;
  }
  const NamedSlices slices = model.named_slices();
  for (NamedTensors* tensors : {&mine.parameters, &mine.buffers, &mine.optimizer}) {
    *tensors = join_slices(*tensors, slices, *role.tensor_group);
  }
  return mine;
}

TrainingState state_of_rank(const LayerRanks& layers, int rank, const WholeLayers& model) {
  NamedTensors weights = model.parameters;
  weights.insert(weights.end(), model.buffers.begin(), model.buffers.end());
  NamedTensors optimizer = tensors_of_rank(layers, rank, model.optimizer);
  if (!layers.empty() && rank == 0) {
    optimizer.push_back(model.optimizer.back());  // the count of steps, the same everywhere
  }
  TrainingState state;
  append(state, kModel, tensors_of_rank(layers, rank, weights));
  append(state, kOptimizer, optimizer);
  return state;
}

NamedTensors weights_in(const TrainingState& state) { return below(kModel, state); }

std::set<int> ranks_with_state(const LayerRanks& layers) {
  std::set<int> ranks{0};
  for (const auto& [layer, rank] : layers) {
    ranks.insert(rank);
  }
  return ranks;
}

void take_state(const RankRole& role, int rank, const TrainingState& state, const Module& model, Optimizer& optimizer,
                const std::string& what) {
  const LayerRanks& layers = role.layers;
  const NamedSlices slices = model.named_slices();
  const NamedTensors weights = cut_slices(tensors_of_rank(layers, rank, weights_in(state)), slices);
  const NamedTensors saved = below(kOptimizer, state);
  NamedTensors mine = cut_slices(tensors_of_rank(layers, rank, saved), slices);
  if (!layers.empty()) {  // the count of steps belongs to no layer
    const std::string count = optimizer.state().back().first;
    std::copy_if(saved.begin(), saved.end(), std::back_inserter(mine),
                 [&](const auto& named) { return named.first == count; });
  }
  if (role.sharded != nullptr) {
    return role.sharded->take_layers({weights, {}, mine}, optimizer, what);
  }
  copy_by_name(weights, weights_of(model), what);
  optimizer.load_state(mine);
}

StateOutline gather_outline(Communicator& comm, const TrainingState& mine) {
  std::string text;
  for (const auto& [name, tensor] : mine) {
    if (is_of_model_or_optimizer(name)) {
      text += line_of(name, tensor.dtype(), tensor.shape()) + "\n";
    }
  }
  StateOutline all;
  for (const std::string& rank_text : gather_texts(comm, text)) {
    std::istringstream lines(rank_text);
    for (std::string line; std::getline(lines, line);) {
      all.insert(line);
    }
  }
  return all;
}

std::string misfit(const StateOutline& expected, const StateContents& state) {
  const StateOutline found = lines_of(state);
  const std::string lacks = missing_from(expected, found, "lacks");
  return lacks.empty() ? missing_from(found, expected, "has an extra") : lacks;
}

}  // namespace stagecoach
