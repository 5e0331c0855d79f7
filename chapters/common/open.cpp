#include "chapters/common/open.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "chapters/common/bug_hooks.h"
#include "chapters/common/initial_weights.h"
#include "core/base/printable.h"
#include "core/base/system.h"
#include "core/base/throw_if.h"
#include "core/cuda_backend.h"
#include "datasets/generated.h"
#include "datasets/open.h"
#include "datasets/text.h"
#include "parallel/launch/launch_environment.h"
#include "parallel/tensor_parallel/class_parallel_loss.h"
#include "parallel/tensor_parallel/sliced_layers.h"
#include "parallel/training/console.h"

namespace stagecoach {

Device open_device(const WorldSettings& world) {
  const Device device = *world.device;
  require_device(device);
  if (device.type == DeviceType::cpu) {
    set_threads(device, world.threads);
    throw_if<UsageError>(world.tf32, "--tf32 without --device cuda: a CPU has no tensor cores; leave out --tf32");
  } else {
    cuda::allow_tf32(world.tf32);
  }
  return device;
}

World open_world(const WorldSettings& settings) {
  World world{.ranks = settings.ranks,
              .transport = settings.transport,
              .device = open_device(settings).type,
              .threads = settings.threads,
              .timeout = settings.timeout,
              .clock = settings.clock,
              .network = *settings.link,
              .device_model = *settings.modelled_device,
              .reduce = settings.reduce};
  for (int r = 0; world.device == DeviceType::cpu && r < std::min(world.ranks, kMaxDevices); ++r) {
    set_threads(device_of(world, r), settings.threads);  // set here, so that they are not bound to a rank's core
  }
  return world;
}

MeshSizes mesh_of(const Settings& settings) {
  const auto& mesh = settings.data_parallel.mesh;
  if (!mesh.empty()) {
    return *mesh;
  }
  return settings.data_parallel.shard ? MeshSizes{.shard = settings.world.ranks}
                                      : MeshSizes{.data = settings.world.ranks};
}

std::vector<int> replicas_of(const Settings& settings) {
  const auto& replicas = settings.pipeline.replicas;
  return replicas.empty() ? std::vector<int>(static_cast<std::size_t>(settings.world.ranks), 1) : *replicas;
}

namespace {

/// Returns how many images are generated.
GeneratedSettings generated_sizes(const Settings& settings) {
  if (!settings.data.smoke) {
    return {};
  }
  if (cuda::is_emulated() && settings.world.device->type == DeviceType::cuda) {
    return {.train = 32, .test = 16};  // the emulation is about a thousand times slower than a GPU
  }
  // A few seconds for every model: the residual networks need about a hundred times as much arithmetic as convnet.
  return settings.training.model == "convnet" ? GeneratedSettings{.train = 2000, .test = 500}
                                              : GeneratedSettings{.train = 64, .test = 32};
}

TrainTest read_data(const Settings& settings) {
  if (settings.data.source == "generated") {
    const GeneratedSettings sizes = generated_sizes(settings);
    return settings.run.explain ? outline_of(sizes) : generate(sizes);  // a plan needs no images
  }
  constexpr std::int64_t kSmokeBytes = 1 << 14;
  TrainTest data =
      open_dataset(settings.data.source,
                   {.image_size = settings.training.image_size,
                    .max_pixels = settings.data.max_megapixels * 1'000'000,
                    .background = *settings.data.background},
                   {.context = settings.training.context, .max_bytes = settings.data.smoke ? kSmokeBytes : 0});
  throw_if<DataError>(!is_text(settings.data.source) && (!data.train.has_images() || data.train.classes.empty()),
                      "--data {} has no images with labels: expected inputs uint8 [N, 3, H, W] and targets int32 [N]; "
                      "write them so, or train on other samples with a program of your own (docs/library.md)",
                      settings.data.source);
  return data;
}

/// Returns whether loaders prefetch batches on separate threads. If the ranks need every core, such a thread would only
/// interrupt one of them. (Ranks on other machines count too, since this process does not know where ranks run.) A GPU
/// leaves the cores free, and so does the virtual clock, which simulates one machine per rank. On the modelled clock
/// nothing gains from another thread, and the memory of its batches would depend on when it runs.
bool prefetches(const WorldSettings& world) {
  const auto computing = static_cast<std::size_t>(world.ranks) * static_cast<std::size_t>(world.threads);
  return world.device->type != DeviceType::cpu || world.clock == ClockKind::virtual_time ||
         (world.clock == ClockKind::wall && system::usable_cores().size() > computing);
}

/// Returns read_data's data. If several processes cannot read them, rank 0 says why, and the others only who they are.
TrainTest read_data_on_each_rank(const Settings& settings) try {
  return read_data(settings);
} catch (const DataError&) {
  if (is_rank_zero()) {
    throw;
  }
  throw DataError(fmt::format("rank {}: cannot use --data {}; rank 0 says why, unless it reads another folder",
                              launch_environment()->rank, settings.data.source));
}

}  // namespace

TrainTest open_data(const Settings& settings) {
  TrainTest data = read_data_on_each_rank(settings);
  if (is_rank_zero()) {
    if (!settings.run.explain) {
      print_line(describe(data));
    } else if (settings.world.data_on_device) {
      print_line("note: memory and times are predicted without the data set on the device (--data-on-device)");
    }
    const std::string left_out = describe_left_out(data.source);
    if (!left_out.empty()) {
      print_line(printable(left_out));
    }
    for (const std::string& note : data.source.notes) {
      print_line("note: " + printable(note));
    }
  }
  return data;
}

Loader make_loader(const TrainingSettings& training, const WorldSettings& world, const Dataset& data, LoaderFor purpose,
                   bool inputs, const Shard& shard) {
  const bool trains = purpose == LoaderFor::training;
  return Loader(data, {.batch_size = training.batch_size,
                       .seed = training.seed,
                       .shuffle = trains,
                       .augment = trains && training.augment,
                       .shard = shard.index,
                       .shards = shard.of,
                       .image_size = training.image_size,
                       .inputs = inputs,
                       .on_device = world.data_on_device,
                       .prefetch = prefetches(world)});
}

SequenceParallel sequence_of(const TrainingSettings& training) {
  return training.sequence_parallel ? SequenceParallel::yes : SequenceParallel::no;
}

ClassParallel classes_of(const TrainingSettings& training) {
  return training.class_parallel ? ClassParallel::yes : ClassParallel::no;
}

LossFunction loss_of(const TrainingSettings& training, Communicator* tensor_group) {
  if (!training.class_parallel) {
    return loss_of_whole_logits;
  }
  if (tensor_group == nullptr || tensor_group->size() == 1) {
    return sliced_class_loss(static_cast<int>(training.tensor_slices));
  }
  return class_parallel_loss({tensor_group->size(), tensor_group->rank(), tensor_group});
}

Shape input_shape(const TrainingSettings& training, std::int64_t count) {
  const std::int64_t side = training.image_size;
  return reads_text(training) ? Shape{count, training.context} : Shape{count, 3, side, side};
}

namespace {

/// Returns zeros; on the device `meta`, where tensors have no elements, without the kernel that fills them.
Tensor blank(const Shape& shape, DType type, Device device) {
  return device.type == DeviceType::meta ? Tensor::empty(shape, type, device) : Tensor::zeros(shape, type, device);
}

}  // namespace

Tensor blank_inputs(const TrainingSettings& training, std::int64_t count, Device device) {
  return blank(input_shape(training, count), reads_text(training) ? DType::int32 : DType::uint8, device);
}

Tensor blank_targets(const TrainingSettings& training, std::int64_t count, Device device) {
  return blank(reads_text(training) ? Shape{count, training.context} : Shape{count}, DType::int32, device);
}

ModelSizes sizes_of(const TrainingSettings& training) {
  return {training.depth, training.width, training.heads, training.context};
}

std::shared_ptr<Sequential> make_model_of(const TrainingSettings& training, const Dataset& data,
                                          std::shared_ptr<const LayerFactory> layers) {
  throw_if<UsageError>(training.model == "toy",
                       "--model toy takes 4 numbers, not images or text, and is for chapter 2 only; use convnet, vit, "
                       "mlp, gpt or a resnet");
  ModelSettings settings{.softmax_head = training.head == Head::softmax,
                         .classes = static_cast<std::int64_t>(data.classes.size()),
                         .image_size = training.image_size,
                         .sizes = sizes_of(training),
                         .dropout = training.dropout,
                         .tie_head = training.tie_head,
                         .seed = training.seed};
  const auto make = [&](const std::string& flag) {
    try {
      return make_model(training.model, settings);
    } catch (const UsageError& error) {
      throw UsageError(fmt::format("{}: {}", flag, error.what()));
    }
  };
  const auto whole = make(reads_text(training) ? "--model gpt" : fmt::format("--image-size {}", training.image_size));
  if (layers == nullptr && training.tensor_slices == 1) {
    return whole;
  }
  const int slices = static_cast<int>(training.tensor_slices);
  settings.layers =
      layers == nullptr ? std::make_shared<SlicedLayers>(slices, sequence_of(training), classes_of(training)) : layers;
  return make(fmt::format("--mesh tp={0} or --tensor-slices {0}", slices));
}

std::shared_ptr<Sequential> make_model(const TrainingSettings& training, const Dataset& data, Device device, int rank) {
  auto model = make_model_of(training, data);
  put_bug_into(*model, training);
  model->materialize(weight_seed(training, rank), device);
  load_initial_weights(training, data, *model);
  return model;
}

TiedWeights::Names tied_names(const TrainingSettings& training) {
  return training.tie_head ? tied_head() : TiedWeights::Names{};
}

std::unique_ptr<Optimizer> make_optimizer(const TrainingSettings& training, NamedTensors parameters) {
  TiedWeights::Names here = tied_names(training);
  const auto has = [&](const std::string& name) { return find_tensor(parameters, name).defined(); };
  std::erase_if(here, [&](const auto& pair) { return !has(pair.first) || !has(pair.second); });
  const TiedWeights tied(parameters, here);
  auto optimizer = make_optimizer(training.optimizer, without_copies(std::move(parameters), tied_names(training)),
                                  training.lr, training.momentum, training.weight_decay);
  tie(*optimizer, tied);
  if (training.decay == Decay::weights) {
    optimizer->decay_weights_only();
  }
  if (training.clip_norm > 0) {
    optimizer->clip_norm(training.clip_norm);
  }
  return optimizer;
}

}  // namespace stagecoach
