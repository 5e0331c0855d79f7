#pragma once
/// @file
/// Brings what is spread over the ranks to rank 0, which writes the files.

#include <string>
#include <utility>
#include <vector>

#include "nn/named_tensors.h"
#include "parallel/comm/communicator.h"

namespace stagecoach {

/// Who holds each layer of a model, in the model's order: its name and a rank. Empty for a model on one rank.
using LayerRanks = std::vector<std::pair<std::string, int>>;

/// Rank 0 gets the tensors of all ranks on the CPU, layer by layer in the model's order, as if one device held them;
/// the others get nothing. `mine` are this rank's, named "<layer>.…". All ranks call it together.
NamedTensors gather_tensors(Communicator& comm, const LayerRanks& layers, const NamedTensors& mine);

/// Rank 0 gets the texts of all ranks, in their order; the others get nothing.
std::vector<std::string> gather_texts(Communicator& comm, const std::string& mine);

/// Those of `tensors` whose layer rank `rank` holds; all of them when `layers` is empty.
NamedTensors tensors_of_rank(const LayerRanks& layers, int rank, const NamedTensors& tensors);

}  // namespace stagecoach
