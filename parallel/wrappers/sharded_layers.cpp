#include "parallel/wrappers/sharded_layers.h"

#include <utility>

#include "core/autograd/grad_mode.h"
#include "core/base/error.h"

namespace stagecoach {
namespace {

constexpr const char* kUpdates = ".updates";

void append(NamedTensors& all, const NamedTensors& more) { all.insert(all.end(), more.begin(), more.end()); }

/// Returns the tensors NAME + `suffix` of `state` for the shards of `flat`, in their order.
std::vector<Tensor> states_of(const FlatParameters& flat, const NamedTensors& state, const std::string& suffix) {
  std::vector<Tensor> states;
  for (const auto& [name, shard] : flat.shards()) {
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

ShardedLayers::ShardedLayers(const Sequential& model, const std::vector<int>& unit_layers, const ShardedUnits& units,
                             const ShardGroups& groups)
    : units_(units), groups_(groups) {
  for (std::size_t u = 0; u < unit_layers.size(); ++u) {
    for (int i = 0; i < unit_layers[u]; ++i) {
      owners_.emplace_back(model.name(static_cast<int>(owners_.size())), static_cast<int>(u) % groups.shards().size());
    }
  }
}

int ShardedLayers::owner_of(const FlatParameters& flat) const {
  return layer_of(owners_, flat.parameters().front().first)->second;
}

WholeLayers ShardedLayers::whole_layers(const Optimizer& optimizer) const {
  const NoGrad no_grad;
  WholeLayers whole;
  for (const auto& flat : units_.flats) {
    gather_flat(*flat, optimizer, whole);
  }
  for (const ShardedUnit& unit : units_.units) {
    for (const auto& [name, buffer] : unit.layers->named_buffers()) {  // each rank has its own; rank 0's are saved
      Tensor copy = buffer.clone();
      groups_.shards().broadcast(copy, 0);
      if (saves(name)) {
        whole.buffers.emplace_back(name, copy);
      }
    }
  }
  whole.optimizer.push_back(optimizer.state().back());  // the count of steps
  return whole;
}

void ShardedLayers::gather_flat(const FlatParameters& flat, const Optimizer& optimizer, WholeLayers& whole) const {
  const NamedTensors state = optimizer.state();
  const bool is_mine = owner_of(flat) == groups_.shards().rank();
  const auto gather = [&](const Tensor& shard, const std::string& suffix, NamedTensors& into) {
    const NamedTensors places = flat.places_in(flat.gathered(shard, groups_), suffix);
    if (is_mine) {
      append(into, places);
    }
    return places.front().second;
  };
  for (const Tensor weights = gather(flat.shard(), "", whole.parameters); const auto& [name, copy] : flat.copies()) {
    if (saves(name)) {
      whole.parameters.emplace_back(name, weights);
    }
  }
  if (!flat.trains()) {
    return;
  }
  for (const std::string& part : optimizer.parts()) {
    gather(flat.joined(states_of(flat, state, "." + part)), "." + part, whole.optimizer);
  }
  const std::vector<double> counts = update_counts(flat, state);
  for (std::size_t i = 0; is_mine && i < counts.size(); ++i) {
    whole.optimizer.emplace_back(flat.parameters()[i].first + kUpdates,
                                 Tensor::from(std::vector{static_cast<std::int32_t>(counts[i])}, {}));
  }
}

/// Returns how often each parameter was updated: the same for all of its parts.
std::vector<double> ShardedLayers::update_counts(const FlatParameters& flat, const NamedTensors& state) const {
  const std::size_t count = flat.parameters().size();
  std::vector<double> sums(2 * count);  // of the counts, then of the ranks that have a part
  const std::vector<Tensor> updates = states_of(flat, state, kUpdates);
  for (std::size_t i = 0; i < updates.size(); ++i) {
    const std::size_t whole = flat.whole_of_shards()[i];
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

/// Returns the flat tensor of which the rank that saves it has the tensors NAME + `suffix`.
Tensor ShardedLayers::scattered(const FlatParameters& flat, const NamedTensors& mine, const std::string& suffix,
                                const std::string& what) const {
  const int owner = owner_of(flat);
  Tensor whole = flat.flat_zeros();
  if (owner == groups_.shards().rank()) {
    const NamedTensors places = flat.places_in(whole, suffix);
    copy_by_name(of_same_names(mine, places), places, what);
  }
  groups_.shards().broadcast(whole, owner);
  return whole;
}

void ShardedLayers::take_weights(const NamedTensors& mine, const std::string& what) {
  const NoGrad no_grad;
  for (const auto& flat : units_.flats) {
    flat->set_weights(scattered(*flat, mine, "", what));
  }
  for (const ShardedUnit& unit : units_.units) {
    for (const auto& [name, buffer] : unit.layers->named_buffers()) {
      if (saves(name)) {
        copy_by_name(of_same_names(mine, {{name, buffer}}), {{name, buffer}}, what);
      }
      Tensor here = buffer;
      groups_.shards().broadcast(here, layer_of(owners_, name)->second);
    }
  }
}

void ShardedLayers::take_layers(const WholeLayers& mine, Optimizer& optimizer, const std::string& what) {
  const NoGrad no_grad;
  take_weights(mine.parameters, what);
  for (const auto& flat : units_.flats) {
    if (flat->trains()) {
      take_states(*flat, mine.optimizer, optimizer, what);
    }
  }
  Tensor(optimizer.state().back().second).copy_from(mine.optimizer.back().second);  // the count of steps
}

void ShardedLayers::take_states(const FlatParameters& flat, const NamedTensors& mine, const Optimizer& optimizer,
                                const std::string& what) {
  const NamedTensors state = optimizer.state();
  for (const std::string& part : optimizer.parts()) {
    const Tensor whole = scattered(flat, mine, "." + part, what);
    const std::vector<Tensor> saved = flat.parts_of(flat.own_part(whole));
    const std::vector<Tensor> states = states_of(flat, state, "." + part);
    for (std::size_t i = 0; i < states.size(); ++i) {
      Tensor(states[i]).copy_from(saved[i]);
    }
  }
  std::vector<double> counts(flat.parameters().size());
  for (std::size_t i = 0; owner_of(flat) == groups_.shards().rank() && i < counts.size(); ++i) {
    counts[i] = find_tensor(mine, flat.parameters()[i].first + kUpdates).item();
  }
  counts = groups_.shards().sum_numbers(counts);
  const std::vector<Tensor> updates = states_of(flat, state, kUpdates);
  for (std::size_t i = 0; i < updates.size(); ++i) {
    Tensor(updates[i]).fill(counts[flat.whole_of_shards()[i]]);
  }
}

}  // namespace stagecoach
