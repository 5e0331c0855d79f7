#include "chapters/06_ddp/topology.h"

#include <algorithm>

#include "chapters/common/open.h"
#include "core/base/throw_if.h"
#include "parallel/data_parallel/sync_batch_norm.h"
#include "parallel/training/replica_role.h"
#include "parallel/wrappers/mesh_role.h"

namespace stagecoach {
namespace {

/// Throws UsageError if batch norm would have to normalise no images on some rank.
void require_images_for_all(const Settings& settings, const Sequential& model, const Dataset& data, int shards) {
  const std::int64_t rest = data.size() % settings.training.batch_size;
  const std::int64_t least = rest == 0 ? std::min(settings.training.batch_size, data.size()) : rest;
  throw_if<UsageError>(least < shards && !settings.data_parallel.sync_batch_norm && batch_norm_layers(model) > 0,
                       "model {}: the last batch of an epoch has {} images for {} ranks, but batch norm needs at least "
                       "one per rank; give --sync-batch-norm, a --batch-size other than {}, or fewer ranks",
                       settings.training.model, least, shards, settings.training.batch_size);
}

}  // namespace

Topology make_topology(const Settings& settings, const Dataset& data) {
  Topology topology{.world = open_world(settings.world)};
  topology.mesh = mesh_of(settings);
  const auto model = make_model_of(settings.training, data);
  require_images_for_all(settings, *model, data, topology.mesh.data);
  if (topology.mesh.pipeline > 1) {
    topology.pipeline = make_pipeline_plan(settings, topology.mesh, Topology::kRankOrder, data);
    topology.notes = topology.pipeline->notes;
    topology.role = role_of(*topology.pipeline);
    return topology;
  }
  topology.role = replica_role(*model);
  topology.role.parts = {};  // the settings refuse other ones
  topology.role.stages = stages_text({model->size()}, contiguous_placement({topology.mesh.data}));
  return topology;
}

RankRole role_of(const Settings& settings, const Topology& topology, int rank) {
  RankRole role =
      topology.pipeline ? mesh_role(topology.role, rank, topology.mesh, Topology::kRankOrder) : topology.role;
  if (settings.data_parallel.mode == DataParallelMode::central) {  // rank 0 has it all
    role.replica_of = rank;
  }
  return role;
}

StepModel step_of(const Settings& settings, const Topology& topology, const NamedTensors& parameters,
                  const StepCosts& costs) {
  return {.costs = costs,
          .parameters = parameters,
          .caps = settings.data_parallel.caps(),
          .link = topology.world.network.among_first(topology.world.ranks),
          .ranks = topology.world.ranks,
          .compressed = settings.data_parallel.compress == CompressionKind::half ? 0.5 : 1};
}

}  // namespace stagecoach
