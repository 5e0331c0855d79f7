#include "chapters/07_one_controller/placed_model.h"

#include <fmt/format.h>

#include "chapters/common/open.h"
#include "chapters/common/plan.h"
#include "core/autograd/grad_mode.h"
#include "core/base/throw_if.h"
#include "core/ops.h"

namespace stagecoach {

Tensor PlacedModel::forward(int stage, const Tensor& x) const {
  const auto s = static_cast<std::size_t>(stage);
  const Tensor here = x.to(devices[s]);
  if (s < moved.size() && x.device() != here.device() && grad_enabled()) {
    moved[s] += static_cast<double>(x.bytes());
  }
  return stages[s]->forward(here.dtype() == DType::uint8 ? normalize(here) : here);
}

LinkBytes PlacedModel::busiest_link() const {
  LinkBytes most;
  for (std::size_t s = 1; s < moved.size(); ++s) {  // the images that enter stage 0 come from the host
    if (moved[s] > most.bytes) {
      most = {devices[s - 1].index, devices[s].index, moved[s]};
    }
  }
  return most;
}

std::vector<Device> open_devices(const WorldSettings& settings) {
  const World world = open_world(settings);
  throw_if<UsageError>(world.device == DeviceType::cpu && world.ranks >= kMaxDevices,
                       "--ranks {}: chapter 7 has at most {} CPU devices for ranks, as cpu:0 is the host's",
                       world.ranks, kMaxDevices - 1);
  std::vector<Device> devices;
  for (int i = 0; i < world.ranks; ++i) {
    const bool is_cpu = world.device == DeviceType::cpu;
    devices.push_back(is_cpu ? Device{DeviceType::cpu, i + 1} : device_of(world, i));
    require_device(devices.back());
    if (is_cpu) {
      set_threads(devices.back(), world.threads);
    }
  }
  return devices;
}

PlacedModel split_over_devices(const Settings& settings, const Dataset& data, const std::vector<Device>& devices) {
  const auto stages = static_cast<int>(devices.size());
  const PipelineSettings& pipeline = settings.pipeline;
  if (settings.training.model == "convnet" && settings.training.head == Head::logits && stages == 4 &&
      pipeline.split.empty() && pipeline.profile_file.empty()) {
    const auto model = make_model_of(settings.training, data);
    return {model, stages_of(*model, {3, 3, 5, 1}), devices};
  }
  const PlannedModel planned = planned_model(settings, open_world(settings.world), data);
  const Schedule placement{round_robin_placement(stages, stages)};
  return {planned.model, stages_of(*planned.model, split_of(pipeline, *planned.model, placement, planned.profile)),
          devices};
}

void place(PlacedModel& model, std::uint64_t seed) {
  for (std::size_t s = 0; s < model.stages.size(); ++s) {
    model.stages[s]->materialize(seed, model.devices[s]);
  }
}

std::string layer_table(const PlacedModel& model, const Shape& sample) {
  std::string table = fmt::format("  {:<14} {:<8} {:<20} {:>11}\n", "layer", "device", "output", "parameters");
  Shape shape = sample;
  for (std::size_t s = 0; s < model.stages.size(); ++s) {
    const Sequential& stage = *model.stages[s];
    for (int i = 0; i < stage.size(); ++i) {
      shape = stage.layer(i)->output_shape(shape);
      table += fmt::format("  {:<14} {:<8} {:<20} {:>11}\n", stage.name(i), to_string(model.devices[s]),
                           to_string(shape), parameter_count(*stage.layer(i)));
    }
  }
  return table;
}

}  // namespace stagecoach
