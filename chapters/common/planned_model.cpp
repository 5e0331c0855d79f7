#include "chapters/common/planned_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "chapters/common/open.h"
#include "chapters/common/profile_file.h"
#include "core/base/text_file.h"
#include "core/base/throw_if.h"
#include "datasets/shares.h"
#include "parallel/launch/launch_environment.h"
#include "parallel/training/run_files.h"
#include "parallel/training/run_folder.h"

namespace stagecoach {
namespace {

/// Returns whether the layers' costs are needed: to choose the stages, to predict times, or to be written.
bool needs_profile(const Settings& settings) {
  const Balance balance = settings.pipeline.balance;
  const bool by_time = settings.pipeline.split.empty() && (balance == Balance::time || balance == Balance::pipedream);
  return by_time || (settings.run.profile && (settings.run.explain || !settings.run.out.empty()));
}

/// Returns the images per step of each pipeline of a run with `data`, which may have fewer images than a batch.
std::int64_t images_per_step(const Settings& settings, const Dataset& data) {
  const std::int64_t pipelines = settings.data_parallel.mesh->data;
  return std::min(settings.training.batch_size, share_of(data.size(), 0, pipelines).count);
}

std::int64_t largest_micro_batch(const TrainingSettings& training, std::int64_t images) {
  return micro_batch_sizes(images, training.microbatches)[0];
}

/// Measures what each layer of `model` costs for a micro-batch of `count` images, on the ranks' devices; or computes it
/// for the modelled device.
std::vector<LayerProfile> measure_layers(const TrainingSettings& training, const World& world, std::int64_t count,
                                         Sequential& model) {
  constexpr int kRepeats = 5;
  const bool is_modelled = world.clock == ClockKind::modelled;
  const DType type = reads_text(training) ? DType::int32 : DType::float32;
  const Device device{is_modelled ? DeviceType::meta : world.device};
  const auto clock = make_clock(world.clock, device, {}, world.device_model);
  Tensor bytes =
      to_bytes(profile_layers(model, input_shape(training, count), device, is_modelled ? 1 : kRepeats, *clock, type));
  broadcast_from_rank_zero(world, bytes);
  return layers_from(bytes);
}

/// Reads the file of --profile-file. Throws UsageError if it is for micro-batches of another size than both that of a
/// whole batch and `microbatch`.
ModelProfile read_profile(const Settings& settings, std::int64_t microbatch) {
  const std::string& path = settings.pipeline.profile_file;
  ModelProfile profile =
      profile_from_json(read_text(path, "check the file given as --profile-file; --profile --out writes one"), path);
  const TrainingSettings& training = settings.training;
  const std::int64_t whole = largest_micro_batch(training, training.batch_size);
  throw_if<UsageError>(profile.microbatch != whole && profile.microbatch != microbatch,
                       "--profile-file {}: the layers were measured with micro-batches of {} images, the run has {}; "
                       "give --batch-size {}",
                       path, profile.microbatch, whole,
                       profile.microbatch * training.microbatches * settings.data_parallel.mesh->data);
  return profile;
}

/// Fills in what the file of --profile-file says.
void use_file(const Settings& settings, PlannedModel& planned) {
  const ModelProfile profile = read_profile(settings, planned.microbatch);
  planned.profile = profile.layers;
  planned.profile_json = to_json(profile);
  if (profile.microbatch != planned.microbatch) {  // a plan may be for more images than the run has
    planned.images = settings.training.batch_size;
    planned.microbatch = profile.microbatch;
  }
  if (profile.layers.front().backward_input > 0) {
    planned.notes.push_back(
        fmt::format("{}: layer 0 has {} backward_input_seconds, which count, though the images that "
                    "it gets need no gradient",
                    settings.pipeline.profile_file, profile.layers.front().backward_input));
  }
  const std::string other = mismatch(profile, settings, *planned.model);
  if (other.empty()) {
    return;
  }
  // Chapter 7 runs the layers to explain them, and chapter 8 asks them what they exchange.
  const bool plans_only = settings.run.explain && settings.chapter != 7 && settings.chapter != 8;
  throw_if<UsageError>(!plans_only, "--profile-file {}: {}, or write a profile of this run with --profile --out DIR",
                       settings.pipeline.profile_file, other);
  planned.notes.push_back(fmt::format("this is a plan for the layers in {}, which a training would refuse: {}",
                                      settings.pipeline.profile_file, other));
  planned.model_name = profile.model;
  planned.model = placeholder_model(profile);
}

/// Returns why stages on a GPU launch each operation although --graph is on, for a note; empty if they record CUDA
/// graphs.
std::string why_not_recorded(const Settings& settings) {
  const std::pair<bool, const char*> reasons[] = {
      {settings.run.profile, "--profile times each"},
      {settings.world.clock != ClockKind::wall, "a virtual clock times each"},
      {settings.training.dropout > 0, "dropout draws other numbers each time"},
      {settings.pipeline.recompute, "with --recompute the activations of a graph would stay in memory"},
      {settings.training.inject != Bug::none, "a layer with a bug may do something else each time"},
      {settings.data_parallel.sync_batch_norm, "with --sync-batch-norm layers wait for other ranks"},
      {mesh_of(settings).tensor > 1, "with tensor parallelism layers wait for other ranks"}};
  for (const auto& [is_so, why] : reasons) {
    if (is_so) {
      return std::string("stages launch their operations one by one, not as CUDA graphs: ") + why;
    }
  }
  return "";
}

}  // namespace

std::int64_t last_images(const Settings& settings, const Dataset& data, std::int64_t images) {
  const std::int64_t rest = data.size() % settings.training.batch_size;
  return rest == 0 ? images : share_of(rest, 0, settings.data_parallel.mesh->data).count;
}

PlannedModel planned_model(const Settings& settings, const Dataset& data,
                           const std::shared_ptr<const LayerFactory>& factory) {
  const std::int64_t images = images_per_step(settings, data);
  PlannedModel planned{.settings = settings,
                       .world = open_world(settings.world),
                       .model_name = settings.training.model,
                       .model = make_model_of(settings.training, data, factory),
                       .images = images,
                       .last_images = last_images(settings, data, images),
                       .microbatch = largest_micro_batch(settings.training, images),
                       .recompute = settings.pipeline.recompute ? Stage::Recompute::yes : Stage::Recompute::no};
  if (settings.world.cuda_graph && planned.world.device == DeviceType::cuda) {
    const std::string why = why_not_recorded(settings);
    if (why.empty()) {
      planned.record = Stage::Record::yes;
    } else {
      planned.notes.push_back(why);
    }
  }
  if (!settings.pipeline.profile_file.empty()) {
    use_file(settings, planned);
  } else if (needs_profile(settings)) {
    planned.profile = measure_layers(settings.training, planned.world, planned.microbatch, *planned.model);
    planned.profile_json = to_json(profile_of(settings, *planned.model, planned.microbatch, planned.profile));
  }
  if (!settings.run.profile) {
    planned.profile_json.clear();
  } else if (settings.run.explain && !settings.run.out.empty() && is_rank_zero()) {
    write_text(make_folder(settings.run.out) / run_files::kProfile, planned.profile_json);
  }
  return planned;
}

}  // namespace stagecoach
