#pragma once
/// @file
/// Gathers what is distributed over the ranks on rank 0, which writes the files.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "nn/named_tensors.h"
#include "parallel/comm/communicator.h"

namespace stagecoach {

/// The name and the rank of each layer of a model, in the model's order. Empty for a model on one rank.
using LayerRanks = std::vector<std::pair<std::string, int>>;

/// Calls `take` on rank 0 for each tensor of all ranks, on the CPU, one at a time and in the model's order, as if one
/// device held them all. `mine` are this rank's tensors, named "<layer>.…". All ranks call it together.
void gather_each(Communicator& comm, const LayerRanks& layers, const NamedTensors& mine,
                 const std::function<void(const std::string& name, const Tensor& tensor)>& take);
/// Returns all these tensors at once on rank 0, and nothing on the other ranks. Only for small models.
NamedTensors gather_tensors(Communicator& comm, const LayerRanks& layers, const NamedTensors& mine);

/// Returns the texts of all ranks, in rank order, on rank 0, and nothing on the other ranks.
std::vector<std::string> gather_texts(Communicator& comm, const std::string& mine);

/// Writes the parameters and buffers of all ranks to `path` on rank 0, as save_weights does for a model on one device.
/// Rank 0 holds only one tensor of another rank at a time. All ranks call it together. Throws DataError.
void save_gathered_weights(Communicator& comm, const LayerRanks& layers, const NamedTensors& parameters,
                           const NamedTensors& buffers, const std::string& path);

/// Returns the entry of the layer to which the tensor named `tensor` belongs; null if it belongs to none. Where the
/// name of a layer begins another's, as "transformer" begins "transformer.h.0", the longer one counts.
const std::pair<std::string, int>* layer_of(const LayerRanks& layers, const std::string& tensor);
/// Returns whether the tensor named `tensor` belongs to a layer of rank `rank`; always true when `layers` is empty.
bool is_of_rank(const LayerRanks& layers, int rank, const std::string& tensor);
/// Returns those of `tensors` whose layer is on rank `rank`; all of them when `layers` is empty.
NamedTensors tensors_of_rank(const LayerRanks& layers, int rank, const NamedTensors& tensors);

}  // namespace stagecoach
