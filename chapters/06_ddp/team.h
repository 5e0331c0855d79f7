#pragma once
/// @file
/// Who does what in a training on shared batches: decided once, before the ranks start.

#include <optional>

#include "chapters/common/plan.h"
#include "parallel/launch/mesh.h"

namespace stagecoach {

struct Team {
  World world = {};
  MeshSizes mesh = {};
  std::string stages = {};            ///< and the ranks that hold them, in words
  LayerRanks layers = {};             ///< on the ranks of the first pipeline, or all on rank 0
  std::optional<Plan> pipeline = {};  ///< of each pipeline, where there are some
  Settings of_pipeline = {};          ///< what each of these is asked for

  /// The rank whose layers `rank` has too.
  int part_of(int rank) const { return rank % mesh.pipeline; }
  /// Which part of each batch it trains on.
  Shard shard_of(int rank) const { return {rank / mesh.pipeline, mesh.data}; }
};

/// What --ranks, --mesh and the pipeline's flags ask for.
Team make_team(const Settings& settings, const Dataset& data);

}  // namespace stagecoach
