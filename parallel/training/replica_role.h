#pragma once
/// @file
/// The role of a rank in data parallelism.

#include "nn/module.h"
#include "parallel/pipeline/rank_role.h"

namespace stagecoach {

/// Returns the role of a rank with a replica of `model`, which may have no memory yet: rank 0 saves for all. In a step
/// it adds up the gradients of so many micro-batches (DistributedDataParallel::accumulate).
inline RankRole replica_role(const Module& model, int microbatches = 1) {
  RankRole role{.replica_of = 0, .splits_losses = true, .parts = BatchParts{.microbatches = microbatches}};
  for (const auto& [name, layer] : model.children()) {
    role.layers.emplace_back(name, 0);
  }
  return role;
}

}  // namespace stagecoach
