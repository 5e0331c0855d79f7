#pragma once
/// @file
/// The ranks of a world as a grid with three directions: tensor, data and pipeline parallelism. Sharded data
/// parallelism (parallel/data_parallel/sharded) has a size of its own, and is no direction of the grid yet.

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "parallel/comm/communicator.h"

namespace stagecoach {

/// The number of ranks in each direction; the product is the size of the world.
struct MeshSizes {
  int data = 1;
  int pipeline = 1;
  int tensor = 1;
  int shard = 1;  ///< ranks that share one copy of the weights, each with its own part of the data
  int ranks() const { return data * pipeline * tensor * shard; }
};

/// Parses the value of --mesh, such as "dp=2,pp=4,tp=2" or "dp=2,shard=4": the numbers of data-parallel, pipeline and
/// tensor-parallel ranks, and of those that share a copy of the weights. A direction that is not named has size 1.
/// Throws UsageError.
MeshSizes mesh_from_text(const std::string& text);

enum class MeshDirection { tensor, data, pipeline };

/// The directions, beginning with the one along which rank numbers are consecutive. Ranks with close numbers are close
/// on most machines, so the direction that sends most comes first.
struct RankOrder {
  std::array<MeshDirection, 3> directions = {MeshDirection::tensor, MeshDirection::data, MeshDirection::pipeline};
  bool operator==(const RankOrder&) const = default;
};

/// Parses the value of --rank-order, such as "tp-dp-pp": each direction once, that of consecutive ranks first. Throws
/// UsageError.
RankOrder rank_order_from_text(const std::string& text);

/// The position of a rank in the grid, from 0 in each direction.
struct MeshPosition {
  int data = 0;
  int pipeline = 0;
  int tensor = 0;
};
MeshPosition position_of(int rank, const MeshSizes& sizes, const RankOrder& order = {});
/// Returns the rank at a position: the inverse of position_of.
int rank_at(const MeshPosition& position, const MeshSizes& sizes, const RankOrder& order = {});

/// Returns the groups of ranks that differ only in `direction`, each ordered by its position there. In the order
/// tp-dp-pp they are those of Megatron-LM's parallel_state (initialize_model_parallel).
std::vector<std::vector<int>> mesh_groups(MeshDirection direction, const MeshSizes& sizes, const RankOrder& order = {});

class Mesh {
 public:
  /// Collective over `world`. Throws UsageError unless the sizes are positive and their product is the size of `world`.
  Mesh(Communicator& world, const MeshSizes& sizes, const RankOrder& order = {});

  /// These return the group of the ranks that differ from this one only in that direction, ordered by position.
  Communicator& data() { return *data_; }
  Communicator& pipeline() { return *pipeline_; }
  Communicator& tensor() { return *tensor_; }

 private:
  std::unique_ptr<Communicator> data_;
  std::unique_ptr<Communicator> pipeline_;
  std::unique_ptr<Communicator> tensor_;
};

}  // namespace stagecoach
