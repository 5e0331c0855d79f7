#pragma once
/// @file
/// The role of a rank in a mesh of pipelines.

#include "parallel/launch/mesh.h"
#include "parallel/pipeline/rank_role.h"

namespace stagecoach {

/// Returns the role of `rank` in a mesh. `role` is that of its pipeline's ranks: its loss rank is one of the pipeline,
/// and its layers are on ranks of the world, those of the first pipeline. `tensor_group` has the ranks that hold slices
/// of the same layers, if there are several.
inline RankRole mesh_role(RankRole role, int rank, const MeshSizes& sizes, const RankOrder& order = {},
                          Communicator* tensor_group = nullptr) {
  role.stages += " of each pipeline";
  role.replica_of = rank_at({.pipeline = position_of(rank, sizes, order).pipeline}, sizes, order);
  role.loss_rank = rank_at({.pipeline = role.loss_rank}, sizes, order);
  role.splits_losses = true;
  role.tensor_group = sizes.tensor > 1 ? tensor_group : nullptr;
  return role;
}

}  // namespace stagecoach
