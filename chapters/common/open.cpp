#include "chapters/common/open.h"

#include "core/cores.h"
#include "core/cuda_backend.h"
#include "core/error.h"
#include "datasets/generated.h"
#include "datasets/open.h"
#include "nn/models.h"

namespace stagecoach {

Device open_device(const Settings& settings) {
  const Device device = parse_device(settings.world.device);
  require_device(device);
  if (device.type == DeviceType::cpu) {
    set_threads(device, settings.world.threads);
    if (settings.world.tf32) {
      throw UsageError("--tf32 is for --device cuda: a CPU has no tensor cores");
    }
  } else {
    cuda::allow_tf32(settings.world.tf32);
  }
  return device;
}

ClockKind clock_kind(const Settings& settings) {
  return settings.world.clock == "wall" ? ClockKind::wall : ClockKind::virtual_time;
}

TrainTest open_data(const Settings& settings) {
  if (!settings.data.smoke) {
    return open_dataset(settings.data.source, settings.data.max_megapixels * 1'000'000);
  }
  if (cuda::is_emulated() && parse_device(settings.world.device).type == DeviceType::cuda) {
    return generate({.train = 32, .test = 16});  // the emulation is some thousand times slower than a GPU
  }
  // A few seconds for every model: the residual networks need some hundred times the arithmetic of convnet.
  return settings.training.model == "convnet" ? generate({.train = 2000, .test = 500})
                                              : generate({.train = 64, .test = 32});
}

namespace {

/// Whether loaders make the next batches on threads of their own. Where the ranks need every core, such a thread would
/// only interrupt one of them. (Ranks on other machines count too: this process does not know where they are.) A GPU
/// leaves the cores free, and so does the virtual clock, on which each rank has a machine to itself.
bool prefetches(const Settings& settings) {
  const auto computing =
      static_cast<std::size_t>(settings.world.ranks) * static_cast<std::size_t>(settings.world.threads);
  return parse_device(settings.world.device).type != DeviceType::cpu ||
         clock_kind(settings) == ClockKind::virtual_time || usable_cores().size() > computing;
}

}  // namespace

Loader training_loader(const Settings& settings, const Dataset& data, bool pictures, const Shard& shard) {
  return Loader(data, {.batch_size = settings.training.batch_size,
                       .seed = settings.training.seed,
                       .augment = settings.training.augment,
                       .shard = shard.index,
                       .shards = shard.of,
                       .image_size = settings.training.image_size,
                       .images = pictures,
                       .prefetch = prefetches(settings)});
}

Loader test_loader(const Settings& settings, const Dataset& data, bool pictures, const Shard& shard) {
  return Loader(data, {.batch_size = settings.training.batch_size,
                       .shuffle = false,
                       .shard = shard.index,
                       .shards = shard.of,
                       .image_size = settings.training.image_size,
                       .images = pictures,
                       .prefetch = prefetches(settings)});
}

std::shared_ptr<Sequential> make_model_of(const Settings& settings, const Dataset& data) {
  if (settings.training.model == "toy") {
    throw UsageError("--model toy takes 4 numbers, not pictures; it belongs to chapter 2. Use convnet, or a resnet");
  }
  try {
    return make_model(settings.training.model, {.softmax_head = settings.training.head == "softmax",
                                                .classes = static_cast<std::int64_t>(data.classes.size()),
                                                .image_size = settings.training.image_size});
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("--image-size {}: {}", settings.training.image_size, error.what()));
  }
}

std::shared_ptr<Sequential> open_model(const Settings& settings, const Dataset& data, Device device) {
  auto model = make_model_of(settings, data);
  model->materialize(settings.training.seed, device);
  return model;
}

std::unique_ptr<Optimizer> open_optimizer(const Settings& settings, const Module& model) {
  return make_optimizer(settings.training.optimizer, model.named_parameters(), settings.training.lr,
                        settings.training.momentum, settings.training.weight_decay);
}

}  // namespace stagecoach
