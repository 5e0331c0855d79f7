#include "parallel/training/sums_over_ranks.h"

#include <algorithm>
#include <numeric>

#include "parallel/tensor_parallel/join_slices.h"

namespace stagecoach {
namespace {

/// Returns the index in the whole model of each parameter of this rank, and the number of all. `counts` are those of
/// the layers.
std::vector<std::size_t> indices_of(const NamedTensors& parameters, const LayerRanks& layers,
                                    const std::vector<double>& counts) {
  std::vector<std::size_t> indices;
  std::size_t first = 0;  // of the layer
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    std::size_t index = first;
    for (const auto& [name, parameter] : parameters) {
      if (layer_of(layers, name) == &layers[layer]) {
        indices.push_back(index++);
      }
    }
    first += static_cast<std::size_t>(counts[layer]);
  }
  return indices;
}

}  // namespace

std::vector<double> sums_of_rank(const NamedTensors& gradients, const NamedSlices& slices, Communicator* tensor_group) {
  if (tensor_group == nullptr) {
    return sums_of_squares(gradients);
  }
  std::vector<double> sums;
  for (const auto& named : gradients) {
    const NamedTensors whole = named.second.defined() ? join_slices({named}, slices, *tensor_group) : NamedTensors{};
    sums.push_back(whole.empty() ? 0 : sums_of_squares(whole)[0]);
  }
  return sums;
}

SumsOfSquares sums_over_ranks(Communicator& comm, const RankRole& role, const Module& model,
                              const Optimizer& optimizer) {
  const LayerRanks& layers = role.layers;
  const bool is_whole = std::all_of(layers.begin(), layers.end(),
                                    [&](const auto& layer) { return layer.second == layers.front().second; });
  if (is_whole && role.tensor_group == nullptr) {
    return {};
  }
  const bool is_owner = role.replica_of.value_or(comm.rank()) == comm.rank();  // replicas have the same gradients
  const NamedTensors& parameters = optimizer.parameters();
  std::vector<double> counts;
  for (const auto& layer : layers) {
    const auto belongs = [&](const auto& parameter) { return layer_of(layers, parameter.first) == &layer; };
    counts.push_back(is_owner ? static_cast<double>(std::count_if(parameters.begin(), parameters.end(), belongs)) : 0);
  }
  counts = comm.sum_numbers(counts);
  const auto count = static_cast<std::size_t>(std::accumulate(counts.begin(), counts.end(), 0.0));
  return [&comm, group = role.tensor_group, slices = model.named_slices(), is_owner, count,
          indices = indices_of(parameters, layers, counts)](const NamedTensors& gradients) {
    const std::vector<double> sums = sums_of_rank(gradients, slices, group);
    std::vector<double> all(count);
    for (std::size_t i = 0; is_owner && i < sums.size(); ++i) {
      all[indices[i]] = sums[i];
    }
    comm.clock().mark_norm();
    return comm.sum_numbers(all);
  };
}

}  // namespace stagecoach
