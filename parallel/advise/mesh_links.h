#pragma once
/// @file
/// The links among the ranks of meshes, which thousands of candidates share.

#include <map>
#include <tuple>

#include "parallel/comm/network.h"
#include "parallel/launch/mesh.h"

namespace stagecoach {

class MeshLinks {
 public:
  /// All rates of `network`, which must outlive this object, are multiplied by `speed`.
  MeshLinks(const Network& network, double speed) : network_(network), speed_(speed) {}

  /// Returns the link between two ranks of a pipeline, that of the slowest pipeline.
  Link between(const MeshSizes& mesh, int from, int to);
  /// Returns the slowest link of the groups of `direction` among ranks that hold the same stages.
  Link among(const MeshSizes& mesh, MeshDirection direction, int pipeline_rank);

 private:
  Link at_speed(const Link& link) const { return {link.latency, speed_ * link.bytes_per_second}; }
  const RankGroups& groups(const MeshSizes& mesh, MeshDirection direction);

  const Network& network_;
  double speed_;
  std::map<std::tuple<int, int, int, MeshDirection>, RankGroups> groups_;
  std::map<std::tuple<int, int, int, MeshDirection, int>, Link> among_;
  std::map<std::tuple<int, int, int, int, int>, Link> between_;
};

}  // namespace stagecoach
