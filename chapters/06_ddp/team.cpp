#include "chapters/06_ddp/team.h"

#include <fmt/format.h>

#include <algorithm>

#include "chapters/common/open.h"
#include "core/error.h"
#include "parallel/data_parallel/sync_batch_norm.h"
#include "parallel/schedule/lower.h"

namespace stagecoach {
namespace {

/// Batch norm cannot normalise no pictures at all, unless it does so over all ranks.
void require_pictures_for_all(const Settings& settings, const Sequential& model, const Dataset& data, int shards) {
  const std::int64_t rest = data.size() % settings.training.batch_size;
  const std::int64_t least = rest == 0 ? std::min(settings.training.batch_size, data.size()) : rest;
  if (least < shards && !settings.data_parallel.sync_batch_norm && batch_norm_layers(model) > 0) {
    throw UsageError(fmt::format(
        "model {}: an epoch's last batch has {} pictures for {} ranks, and batch norm needs some on each; give "
        "--sync-batch-norm, another --batch-size than {}, or fewer ranks",
        settings.training.model, least, shards, settings.training.batch_size));
  }
}

}  // namespace

Team make_team(const Settings& settings, const Dataset& data) {
  Team team{.world = open_world(settings)};
  team.mesh = settings.data_parallel.mesh.empty() ? MeshSizes{.data = settings.world.ranks}
                                                  : mesh_from_text(settings.data_parallel.mesh);
  const auto model = make_model_of(settings, data);
  require_pictures_for_all(settings, *model, data, team.mesh.data);
  if (team.mesh.pipeline > 1) {
    Settings& of_one = team.of_pipeline = settings;
    of_one.world.ranks = team.mesh.pipeline;
    of_one.training.batch_size = share_of(settings.training.batch_size, 0, team.mesh.data).count;
    of_one.training.microbatches = std::min(settings.training.microbatches, of_one.training.batch_size);
    team.pipeline = make_plan(of_one, data, settings.pipeline.schedule);
    team.pipeline->schedule = with_reductions(team.pipeline->schedule);
    team.layers = team.pipeline->layers;
    team.stages = team.pipeline->stages_text() + " of each pipeline";
    return team;
  }
  team.stages = stages_text({model->size()}, contiguous_placement({team.mesh.data}));
  for (int i = 0; i < model->size(); ++i) {
    team.layers.emplace_back(model->name(i), 0);
  }
  return team;
}

}  // namespace stagecoach
