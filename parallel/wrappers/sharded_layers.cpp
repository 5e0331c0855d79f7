#include "parallel/wrappers/sharded_layers.h"

#include <utility>

#include "core/autograd/grad_mode.h"
#include "core/base/error.h"

namespace stagecoach {
namespace {

constexpr const char* kUpdates = ".updates";

void append(NamedTensors& all, const NamedTensors& more) { all.insert(all.end(), more.begin(), more.end()); }

/// Returns the tensors NAME + `suffix` of `state` for the shards of a unit, in their order.
std::vector<Tensor> states_of(const ShardedUnit& unit, const NamedTensors& state, const std::string& suffix) {
  std::vector<Tensor> states;
  for (const auto& [name, shard] : unit.shards()) {
    states.push_back(find_tensor(state, name + suffix));
  }
  return states;
}

/// Returns those of `from` that have the names of `like`.
NamedTensors of_same_names(const NamedTensors& from, const NamedTensors& like) {
  NamedTensors found;
  for (const auto& [name, tensor] : like) {
    if (const Tensor saved = find_tensor(from, name); saved.defined()) {
      found.emplace_back(name, saved);
    }
  }
  return found;
}

}  // namespace

LayerRanks ShardedLayers::owners(const Sequential& model, const std::vector<int>& unit_layers) const {
  LayerRanks owners;
  for (std::size_t u = 0; u < unit_layers.size(); ++u) {
    for (int i = 0; i < unit_layers[u]; ++i) {
      owners.emplace_back(model.name(static_cast<int>(owners.size())), owner_of(u));
    }
  }
  return owners;
}

WholeLayers ShardedLayers::whole_layers(const Optimizer& optimizer) const {
  const NoGrad no_grad;
  WholeLayers whole;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    gather_unit(u, optimizer, whole);
  }
  whole.optimizer.push_back(optimizer.state().back());  // the count of steps
  return whole;
}

void ShardedLayers::gather_unit(std::size_t u, const Optimizer& optimizer, WholeLayers& whole) const {
  const ShardedUnit& unit = *units_[u];
  const NamedTensors state = optimizer.state();
  const bool saves = owner_of(u) == groups_.shards().rank();
  const auto gather = [&](const Tensor& shard, const std::string& suffix, NamedTensors& into) {
    const Tensor flat = unit.gathered(shard, groups_);
    if (saves) {
      append(into, unit.places_in(flat, suffix));
    }
  };
  gather(unit.shard(), "", whole.parameters);
  for (const std::string& part : optimizer.parts()) {
    gather(unit.joined(states_of(unit, state, "." + part)), "." + part, whole.optimizer);
  }
  const std::vector<double> counts = update_counts(unit, state);
  for (std::size_t i = 0; saves && i < counts.size(); ++i) {
    whole.optimizer.emplace_back(unit.parameters()[i].first + kUpdates,
                                 Tensor::from(std::vector{static_cast<std::int32_t>(counts[i])}, {}));
  }
  for (const auto& [name, buffer] : unit.buffers()) {  // each rank has its own; those of rank 0 are saved
    Tensor copy = buffer.clone();
    groups_.shards().broadcast(copy, 0);
    if (saves) {
      whole.buffers.emplace_back(name, copy);
    }
  }
}

/// Returns how often each parameter of a unit was updated: the same for all of its parts.
std::vector<double> ShardedLayers::update_counts(const ShardedUnit& unit, const NamedTensors& state) const {
  const std::size_t count = unit.parameters().size();
  std::vector<double> sums(2 * count);  // of the counts, then of the ranks that have a part
  const std::vector<Tensor> updates = states_of(unit, state, kUpdates);
  for (std::size_t i = 0; i < updates.size(); ++i) {
    const std::size_t whole = unit.whole_of_shards()[i];
    sums[whole] = updates[i].item();
    sums[count + whole] = 1;
  }
  sums = groups_.shards().sum_numbers(sums);
  for (std::size_t i = 0; i < count; ++i) {
    sums[i] /= sums[count + i];
  }
  sums.resize(count);
  return sums;
}

/// Returns the flat tensor of a unit, of which the rank that saves it has the tensors NAME + `suffix`.
Tensor ShardedLayers::scattered(std::size_t u, const NamedTensors& mine, const std::string& suffix,
                                const std::string& what) const {
  const int owner = owner_of(u);
  Tensor flat = units_[u]->flat_zeros();
  if (owner == groups_.shards().rank()) {
    const NamedTensors places = units_[u]->places_in(flat, suffix);
    copy_by_name(of_same_names(mine, places), places, what);
  }
  groups_.shards().broadcast(flat, owner);
  return flat;
}

void ShardedLayers::take_weights(const NamedTensors& mine, const std::string& what) {
  const NoGrad no_grad;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    units_[u]->set_weights(scattered(u, mine, "", what));
    const NamedTensors buffers = units_[u]->buffers();
    if (owner_of(u) == groups_.shards().rank()) {
      copy_by_name(of_same_names(mine, buffers), buffers, what);
    }
    for (const auto& [name, buffer] : buffers) {
      Tensor here = buffer;
      groups_.shards().broadcast(here, owner_of(u));
    }
  }
}

void ShardedLayers::take_layers(const WholeLayers& mine, Optimizer& optimizer, const std::string& what) {
  const NoGrad no_grad;
  take_weights(mine.parameters, what);
  for (std::size_t u = 0; u < units_.size(); ++u) {
    take_states(u, mine.optimizer, optimizer, what);
  }
  Tensor(optimizer.state().back().second).copy_from(mine.optimizer.back().second);  // the count of steps
}

void ShardedLayers::take_states(std::size_t u, const NamedTensors& mine, const Optimizer& optimizer,
                                const std::string& what) {
  const ShardedUnit& unit = *units_[u];
  const NamedTensors state = optimizer.state();
  for (const std::string& part : optimizer.parts()) {
    const Tensor flat = scattered(u, mine, "." + part, what);
    const std::vector<Tensor> saved = unit.parts_of(unit.own_part(flat));
    const std::vector<Tensor> states = states_of(unit, state, "." + part);
    for (std::size_t i = 0; i < states.size(); ++i) {
      Tensor(states[i]).copy_from(saved[i]);
    }
  }
  std::vector<double> counts(unit.parameters().size());
  for (std::size_t i = 0; owner_of(u) == groups_.shards().rank() && i < counts.size(); ++i) {
    counts[i] = find_tensor(mine, unit.parameters()[i].first + kUpdates).item();
  }
  counts = groups_.shards().sum_numbers(counts);
  const std::vector<Tensor> updates = states_of(unit, state, kUpdates);
  for (std::size_t i = 0; i < updates.size(); ++i) {
    Tensor(updates[i]).fill(counts[unit.whole_of_shards()[i]]);
  }
}

}  // namespace stagecoach
