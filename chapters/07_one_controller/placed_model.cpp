#include "chapters/07_one_controller/placed_model.h"

#include <fmt/format.h>

#include <utility>

#include "chapters/07_one_controller/clock_ticks.h"
#include "chapters/07_one_controller/device_times.h"
#include "chapters/common/initial_weights.h"
#include "chapters/common/plan.h"
#include "core/autograd/backward.h"
#include "core/base/throw_if.h"
#include "core/ops.h"
#include "core/transfer.h"

namespace stagecoach {

void PlacedModel::place(std::uint64_t seed) {
  for (std::size_t s = 0; s < stages.size(); ++s) {
    stages[s]->materialize(seed, devices[s]);
  }
}

void PlacedModel::place(const TrainingSettings& training, const Dataset& data) {
  place(training.seed);
  load_initial_weights(training, data, *whole);
}

Tensor PlacedModel::forward(int stage, int microbatch, const Tensor& x) const {
  const Span span("forward", "action", [&] { return fmt::format("{}F{}", stage, microbatch); });
  const auto s = static_cast<std::size_t>(stage);
  const Tensor here = x.to(devices[s]);
  return stages[s]->forward(model_input(here));
}

void PlacedModel::backward(const Tensor& loss, double grad) const {
  const Span span("backward", "action");
  stagecoach::backward(loss, Tensor::full({}, grad, loss.dtype(), loss.device()));
}

std::optional<BatchPosition> position_of_part(std::int64_t samples, int part, int parts) {
  std::optional<BatchPosition> position = BatchScope::current();
  if (position) {
    position->first += share_of(samples, part, parts).first;
  }
  return position;
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

std::shared_ptr<const void> make_asynchronous(const Settings& settings, const std::vector<Device>& devices) {
  const bool synchronous = settings.pipeline.synchronous;
  const int copies = settings.pipeline.copy_stream == CopyStream::compute ? Stream::kCompute : Stream::kCopies;
  if (settings.world.clock == ClockKind::modelled) {
    return std::make_shared<ModelledStreams>(devices, settings.world.link->within_node(), copies, synchronous);
  }
  if (synchronous || devices.front().type != DeviceType::cpu) {
    return nullptr;
  }
  return std::make_shared<AsynchronousDevices>(devices, copies);
}

PlacedModel split_over_devices(const Settings& settings, const Dataset& data, const std::vector<Device>& devices) {
  const auto stages = static_cast<int>(devices.size());
  const PipelineSettings& pipeline = settings.pipeline;
  if (settings.training.model == "convnet" && settings.training.head == Head::logits && stages == 4 &&
      pipeline.split.empty() && pipeline.profile_file.empty()) {
    const auto model = make_model_of(settings.training, data);
    return {model, stages_of(*model, {3, 3, 5, 1}), devices};
  }
  const PlannedModel planned = planned_model(settings, data);
  const Schedule placement{round_robin_placement(stages, stages)};
  return {planned.model, stages_of(*planned.model, split_of(pipeline, *planned.model, placement, planned.profile)),
          devices};
}

DeviceLoader make_host_loader(const Settings& settings, const Dataset& data, LoaderFor purpose, Device host) {
  return {make_loader(settings.training, settings.world, data, purpose), host};
}

void evaluate(const PlacedModel& model, Epoch& epoch, DeviceLoader& loader,
              const std::function<Tensor(const PlacedModel& model, const Tensor& images)>& forward) {
  const NoGrad no_grad;  // nothing is kept for a backward
  model.whole->train(false);
  for (const Batch& batch : epoch.test_batches(loader)) {
    const Tensor labels = batch.targets.to(model.devices.back());
    count_correct(forward(model, batch.inputs), labels, epoch.test_sums().correct);
  }
  model.whole->train(true);
}

Predictor make_predictor(const Settings& settings, const PlacedModel& model) {
  if (model.devices.front().type != DeviceType::cpu) {
    return {};
  }
  Prediction prediction;
  if (!settings.pipeline.synchronous) {
    prediction.ideal_idle = ideal_idle_share(model.size(), static_cast<int>(settings.training.microbatches));
  }
  if (settings.world.clock != ClockKind::modelled) {
    return {.time = [prediction](std::int64_t /*steps*/) { return prediction; }};
  }
  const auto times = std::make_shared<DeviceTimes>(settings, model.devices);
  return {.start_epoch = [times] { times->start(); },
          .time =
              [prediction, times](std::int64_t steps) {
                Prediction with_causes = prediction;
                with_causes.causes = times->causes(steps);
                return with_causes;
              }};
}

}  // namespace stagecoach
