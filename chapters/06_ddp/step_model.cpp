#include "chapters/06_ddp/step_model.h"

namespace stagecoach {

StepModel step_of(const Settings& settings, const Topology& topology, const NamedTensors& parameters,
                  const StepCosts& costs) {
  const auto share = static_cast<double>(settings.training.batch_size) / topology.world.ranks;
  return {.costs = costs,
          .parameters = parameters,
          .caps = settings.data_parallel.caps(),
          .link = topology.world.link,
          .ranks = topology.world.ranks,
          .compressed = settings.data_parallel.compress == CompressionKind::half ? 0.5 : 1,
          .image_bytes = share * 3 * static_cast<double>(settings.training.image_size * settings.training.image_size),
          .logit_bytes = share * static_cast<double>(sizeof(float) * parameters.back().second.numel())};
}

}  // namespace stagecoach
