#pragma once
/// @file
/// Brings what is spread over the ranks to rank 0, which writes the files.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "nn/module.h"
#include "nn/named_tensors.h"
#include "parallel/comm/communicator.h"

namespace stagecoach {

/// Who holds each layer of a model, in the model's order: its name and a rank. Empty for a model on one rank.
using LayerRanks = std::vector<std::pair<std::string, int>>;

/// Rank 0 sees the tensors of all ranks on the CPU, one at a time in the model's order, as if one device held them: it
/// calls `take` for each. `mine` are this rank's, named "<layer>.…". All ranks call it together.
void gather_each(Communicator& comm, const LayerRanks& layers, const NamedTensors& mine,
                 const std::function<void(const std::string& name, const Tensor& tensor)>& take);
/// The same at once, for a small model: the others get nothing.
NamedTensors gather_tensors(Communicator& comm, const LayerRanks& layers, const NamedTensors& mine);

/// Rank 0 gets the texts of all ranks, in their order; the others get nothing.
std::vector<std::string> gather_texts(Communicator& comm, const std::string& mine);

/// Rank 0 writes the parameters and buffers of all ranks to `path`, as save_weights does with the model on one device,
/// and holds only one tensor of another rank at a time. All ranks call it together. Throws DataError.
void save_gathered_weights(Communicator& comm, const LayerRanks& layers, const Module& model, const std::string& path);

/// Whether a tensor of that name is of a layer of rank `rank`; every one is when `layers` is empty.
bool is_of_rank(const LayerRanks& layers, int rank, const std::string& tensor);
/// Those of `tensors` whose layer rank `rank` holds; all of them when `layers` is empty.
NamedTensors tensors_of_rank(const LayerRanks& layers, int rank, const NamedTensors& tensors);

}  // namespace stagecoach
