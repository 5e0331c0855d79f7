#pragma once
/// @file
/// What a rank has of a training: how programs tell a Run (parallel/training/run.h) who saves what.

#include <optional>
#include <string>

#include "parallel/comm/communicator.h"
#include "parallel/pipeline/gather.h"

namespace stagecoach {

/// The part of the training that one rank has.
struct RankRole {
  LayerRanks layers = {};   ///< which rank holds which layer (the first of its replicas). Empty: all on one rank
  std::string stages = {};  ///< the stages and their ranks, as printed
  std::optional<int> replica_of = {};    ///< the rank in `layers` with the same layers, if it is another rank
  int loss_rank = 0;                     ///< the rank that sums losses and correct predictions
  bool splits_losses = false;            ///< several ranks sum them: no rank has the total before the end of an epoch
  std::string profile = {};              ///< the text of profile.json; empty: it is not written
  Communicator* tensor_group = nullptr;  ///< the ranks that hold the slices of these layers; null: they are whole
};

}  // namespace stagecoach
