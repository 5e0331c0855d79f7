#include "parallel/advise/mesh_links.h"

#include <algorithm>
#include <iterator>
#include <vector>

namespace stagecoach {

Link MeshLinks::between(const MeshSizes& mesh, int from, int to) {
  const std::tuple key{mesh.data, mesh.pipeline, mesh.tensor, from, to};
  auto found = between_.find(key);
  if (found == between_.end()) {
    const Link link = network_.between_any(groups(mesh, MeshDirection::pipeline), from, to);
    found = between_.emplace(key, at_speed(link)).first;
  }
  return found->second;
}

Link MeshLinks::among(const MeshSizes& mesh, MeshDirection direction, int pipeline_rank) {
  const std::tuple key{mesh.data, mesh.pipeline, mesh.tensor, direction, pipeline_rank};
  if (const auto found = among_.find(key); found != among_.end()) {
    return found->second;
  }
  const RankGroups& all = groups(mesh, direction);
  RankGroups same_stages;
  std::copy_if(all.begin(), all.end(), std::back_inserter(same_stages), [&](const std::vector<int>& group) {
    return position_of(group.front(), mesh).pipeline == pipeline_rank;
  });
  return among_[key] = at_speed(network_.among_any(same_stages, all));
}

const RankGroups& MeshLinks::groups(const MeshSizes& mesh, MeshDirection direction) {
  RankGroups& groups = groups_[{mesh.data, mesh.pipeline, mesh.tensor, direction}];
  if (groups.empty()) {
    groups = mesh_groups(direction, mesh);
  }
  return groups;
}

}  // namespace stagecoach
