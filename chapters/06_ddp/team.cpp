#include "chapters/06_ddp/team.h"

#include "chapters/common/open.h"

namespace stagecoach {

Team make_team(const Settings& settings, const Dataset& data) {
  Team team{.world = open_world(settings)};
  team.mesh = settings.mesh.empty() ? MeshSizes{.data = settings.ranks} : mesh_from_text(settings.mesh);
  if (team.mesh.pipeline > 1) {
    Settings of_one = settings;
    of_one.ranks = team.mesh.pipeline;
    team.pipeline = make_plan(of_one, data, settings.schedule);
    team.layers = team.pipeline->layers;
    return team;
  }
  const auto model = make_model_of(settings, data);
  for (int i = 0; i < model->size(); ++i) {
    team.layers.emplace_back(model->name(i), 0);
  }
  return team;
}

}  // namespace stagecoach
