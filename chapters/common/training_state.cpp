#include "chapters/common/training_state.h"

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

using Lines = std::multiset<std::string>;

constexpr const char* kMemory = "memory ";  // before the shard's number, in a rank's message

std::string line_of(const std::string& name, DType dtype, const Shape& shape) {
  return fmt::format("{} {}{}", name, name_of(dtype), to_string(shape));
}

Lines lines_of(const StateContents& state) {
  Lines lines;
  for (const TensorInfo& info : state.weights) {
    lines.insert(line_of("weights " + info.name, info.dtype, info.shape));
  }
  for (const TensorInfo& info : state.optimizer) {
    lines.insert(line_of("optimizer " + info.name, info.dtype, info.shape));
  }
  return lines;
}

/// Returns the lines that are in `a` but not in `b`, as "lacks X and 3 more"; empty if there is nothing.
std::string missing_from(const Lines& a, const Lines& b, const char* verb) {
  std::vector<std::string> missing;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(missing));
  if (missing.empty()) {
    return "";
  }
  const std::string more = missing.size() > 1 ? fmt::format(" and {} more", missing.size() - 1) : "";
  return fmt::format("{} {}{}", verb, missing.front(), more);
}

/// Returns the tensors of the compression state, by shard of the batches.
std::map<std::string, Lines> memory_by_shard(const std::vector<TensorInfo>& memory) {
  std::map<std::string, Lines> shards;
  for (const TensorInfo& info : memory) {
    const auto dot = info.name.find('.');
    shards[info.name.substr(0, dot)].insert(line_of(info.name.substr(dot + 1), info.dtype, info.shape));
  }
  return shards;
}

std::string memory_misfit(const std::set<std::string>& expected, const std::vector<TensorInfo>& memory) {
  const std::map<std::string, Lines> shards = memory_by_shard(memory);
  for (const auto& [shard, lines] : shards) {
    if (!expected.contains(shard)) {
      return fmt::format("has compression state of shard {}, which does not exist in this run", shard);
    }
    if (lines != shards.begin()->second) {
      return fmt::format("has compression state of shard {} whose shapes differ from those of shard {}", shard,
                         shards.begin()->first);
    }
  }
  const auto is_missing = [&](const std::string& shard) { return !shards.contains(shard); };
  const auto missing = std::find_if(expected.begin(), expected.end(), is_missing);
  return shards.empty() || missing == expected.end() ? ""
                                                     : fmt::format("lacks the compression state of shard {}", *missing);
}

}  // namespace

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

WholeModel whole_model(const RankRole& role, const Module& model, const Optimizer& optimizer) {
  WholeModel mine{model.named_parameters(), model.named_buffers(), optimizer.state()};
  if (role.tensor_group == nullptr) {
    return mine;
  }
  const NamedSlices slices = model.named_slices();
  for (NamedTensors* tensors : {&mine.parameters, &mine.buffers, &mine.optimizer}) {
    *tensors = join_slices(*tensors, slices, *role.tensor_group);
  }
  return mine;
}

TrainingState state_of_rank(const LayerRanks& layers, int rank, const WholeModel& model) {
  NamedTensors weights = model.parameters;
  weights.insert(weights.end(), model.buffers.begin(), model.buffers.end());
  TrainingState state{tensors_of_rank(layers, rank, weights), tensors_of_rank(layers, rank, model.optimizer), {}};
  if (!layers.empty() && rank == 0) {
    state.optimizer.push_back(model.optimizer.back());  // the count of steps, the same everywhere
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
  const NamedSlices slices = model.named_slices();
  copy_by_name(cut_slices(tensors_of_rank(layers, rank, state.weights), slices), weights_of(model), what);
  NamedTensors mine = cut_slices(tensors_of_rank(layers, rank, state.optimizer), slices);
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

StateOutline gather_outline(Communicator& comm, const TrainingState& mine, const std::string& memory_shard) {
  std::string text = memory_shard.empty() ? "" : kMemory + memory_shard + "\n";
  for (const auto& [kind, tensors] : {std::pair("weights ", &mine.weights), {"optimizer ", &mine.optimizer}}) {
    for (const auto& [name, tensor] : *tensors) {
      text += line_of(kind + name, tensor.dtype(), tensor.shape()) + "\n";
    }
  }
  StateOutline all;
  for (const std::string& of_rank : gather_texts(comm, text)) {
    std::istringstream lines(of_rank);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with(kMemory)) {
        all.memory_shards.insert(line.substr(std::string(kMemory).size()));
      } else {
        all.tensors.insert(line);
      }
    }
  }
  return all;
}

std::string misfit(const StateOutline& expected, const StateContents& state) {
  const Lines lines = lines_of(state);
  for (const std::string& reason :
       {missing_from(expected.tensors, lines, "lacks"), missing_from(lines, expected.tensors, "has an extra"),
        memory_misfit(expected.memory_shards, state.memory)}) {
    if (!reason.empty()) {
      return reason;
    }
  }
  return "";
}

}  // namespace stagecoach
