#include "parallel/launch/mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "core/base/parse.h"
#include "core/base/throw_if.h"
#include "core/device.h"

namespace stagecoach {
namespace {

/// A direction under the name that users know it by.
struct NamedDirection {
  std::string_view name;
  MeshDirection direction;
  int MeshSizes::*size;
  int MeshPosition::*position;
};
// In the order of MeshDirection.
constexpr NamedDirection kDirections[] = {
    {"tp", MeshDirection::tensor, &MeshSizes::tensor, &MeshPosition::tensor},
    {"dp", MeshDirection::data, &MeshSizes::data, &MeshPosition::data},
    {"pp", MeshDirection::pipeline, &MeshSizes::pipeline, &MeshPosition::pipeline},
};

const NamedDirection* find(std::string_view name) {
  const auto* found = std::find_if(std::begin(kDirections), std::end(kDirections),
                                   [&](const NamedDirection& one) { return one.name == name; });
  return found == std::end(kDirections) ? nullptr : found;
}

const NamedDirection& named(MeshDirection direction) { return kDirections[static_cast<std::size_t>(direction)]; }

long long product(const MeshSizes& sizes) { return 1LL * sizes.data * sizes.pipeline * sizes.tensor * sizes.shard; }

}  // namespace

MeshSizes mesh_from_text(const std::string& text) {
  MeshSizes sizes;
  const auto refuse = [&] {
    throw UsageError(
        fmt::format("'{}' is not a mesh: expected the numbers of data-parallel, pipeline and tensor-parallel ranks, "
                    "each from 1 to {}, such as dp=2,pp=2,tp=2",
                    text, kMaxPlannedRanks));
  };
  for (const std::string_view part : split_text(text, ',')) {
    const std::string_view name = part.substr(0, part.find('='));
    const NamedDirection* direction = find(name);
    const bool is_shard = name == "shard";
    if ((direction == nullptr && !is_shard) || name.size() == part.size()) {
      refuse();
    }
    int& size = is_shard ? sizes.shard : sizes.*direction->size;
    if (size != 1) {
      refuse();  // named twice
    }
    size = number_from<int>(part.substr(name.size() + 1)).value_or(0);
    if (size < 1 || size > kMaxPlannedRanks) {
      refuse();
    }
  }
  throw_if<UsageError>(product(sizes) > kMaxPlannedRanks, "mesh '{0}': expected at most {2} ranks, got {1}", text,
                       product(sizes), kMaxPlannedRanks);
  return sizes;
}

RankOrder rank_order_from_text(const std::string& text) {
  RankOrder order;
  std::size_t count = 0;
  for (const std::string_view part : split_text(text, '-')) {
    const NamedDirection* direction = find(part);
    const auto end = order.directions.begin() + static_cast<std::ptrdiff_t>(std::min(count, order.directions.size()));
    if (direction == nullptr || count == order.directions.size() ||
        std::find(order.directions.begin(), end, direction->direction) != end) {
      count = 0;
      break;
    }
    order.directions[count++] = direction->direction;
  }
  throw_if<UsageError>(count != order.directions.size(),
                       "'{}' is not an order of ranks: expected dp, pp and tp once each, such as tp-dp-pp", text);
  return order;
}

MeshPosition position_of(int rank, const MeshSizes& sizes, const RankOrder& order) {
  MeshPosition position;
  for (const MeshDirection direction : order.directions) {
    const NamedDirection& one = named(direction);
    position.*one.position = rank % (sizes.*one.size);
    rank /= sizes.*one.size;
  }
  return position;
}

int rank_at(const MeshPosition& position, const MeshSizes& sizes, const RankOrder& order) {
  int rank = 0;
  int stride = 1;
  for (const MeshDirection direction : order.directions) {
    const NamedDirection& one = named(direction);
    rank += stride * (position.*one.position);
    stride *= sizes.*one.size;
  }
  return rank;
}

std::vector<std::vector<int>> mesh_groups(MeshDirection direction, const MeshSizes& sizes, const RankOrder& order) {
  const NamedDirection& along = named(direction);
  std::vector<std::vector<int>> groups;
  for (int rank = 0; rank < sizes.ranks(); ++rank) {
    MeshPosition position = position_of(rank, sizes, order);
    if (position.*along.position == 0) {  // the first of its group
      std::vector<int>& group = groups.emplace_back();
      for (int& at = position.*along.position; at < sizes.*along.size; ++at) {
        group.push_back(rank_at(position, sizes, order));
      }
    }
  }
  return groups;
}

Mesh::Mesh(Communicator& world, const MeshSizes& sizes, const RankOrder& order) {
  throw_if<UsageError>(sizes.shard != 1, "a mesh of pipelines and layers has no shards: expected 1, got {}",
                       sizes.shard);
  throw_if<UsageError>(sizes.data < 1 || sizes.pipeline < 1 || sizes.tensor < 1 || product(sizes) != world.size(),
                       "a mesh of {} data x {} pipeline x {} tensor ranks does not match the world: expected {} ranks, "
                       "got {}",
                       sizes.data, sizes.pipeline, sizes.tensor, product(sizes), world.size());
  const MeshPosition mine = position_of(world.rank(), sizes, order);
  const auto group = [&](const NamedDirection& along) {
    MeshPosition first = mine;
    first.*along.position = 0;
    return world.split(rank_at(first, sizes, order), mine.*along.position);
  };
  data_ = group(named(MeshDirection::data));
  pipeline_ = group(named(MeshDirection::pipeline));
  tensor_ = group(named(MeshDirection::tensor));
}

}  // namespace stagecoach
