#include "parallel/wrappers/pipe.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/autograd/grad_mode.h"
#include "core/base/throw_if.h"
#include "core/ops.h"
#include "datasets/shares.h"
#include "parallel/pipeline/fastest_split.h"
#include "parallel/pipeline/layer_profile.h"
#include "parallel/schedule/lower.h"
#include "parallel/schedule/schedule_kinds.h"
#include "parallel/wrappers/require_batch.h"

namespace stagecoach {
namespace {

std::shared_ptr<Sequential> require_layers(std::shared_ptr<Sequential> model) {
  throw_if<UsageError>(model == nullptr || model->size() == 0,
                       "Pipe: expected a model with layers, got one without; add() them before");
  return model;
}

/// Returns the stages per rank: where the settings leave the choice, two, or the nearest number that the schedule
/// takes.
int stages_per_rank(const PipeSettings& settings) {
  const ScheduleKind* kind = find_schedule(settings.schedule);
  if (settings.stages_per_rank != 0 || kind == nullptr) {
    return settings.stages_per_rank;
  }
  return std::clamp(2, kind->min_chunks, kind->max_chunks);
}

/// Returns what make_schedule makes. Its errors name the micro-batches as PipeSettings does.
Schedule make_computations(const PipeSettings& settings) try {
  return make_schedule(settings.schedule, settings.ranks, settings.chunks, stages_per_rank(settings));
} catch (const UsageError& error) {
  constexpr std::string_view kTheirs = "`microbatches`";
  std::string text = error.what();
  for (auto at = text.find(kTheirs); at != std::string::npos; at = text.find(kTheirs)) {
    text.replace(at + 1, kTheirs.size() - 2, "chunks");  // between the quotes
  }
  throw UsageError(text);
}

/// Returns the schedule of a step, with its messages.
Schedule make_step(const PipeSettings& settings, int layers) {
  const Schedule computations = make_computations(settings);
  static_cast<void>(split_by_layers(layers, computations.stage_count()));  // throws for too many stages
  return lower(computations, {.sends_wait = find_schedule(settings.schedule)->sends_wait});
}

Stage::Recompute recompute_of(const PipeSettings& settings) {
  return settings.recompute ? Stage::Recompute::yes : Stage::Recompute::no;
}

/// Returns the split whose steps are as fast as possible for micro-batches of shape `images`. Measures at least two
/// images, because batch norm in training needs more than one value per channel.
Split measured_split(Sequential& model, const Shape& images, const Schedule& schedule, const PipeSettings& settings) {
  const Shape measured = images.with(0, std::max<std::int64_t>(images[0], 2));
  const auto profile = profile_layers(model, measured, Device{settings.device});
  return fastest_split(profile, schedule, recompute_of(settings));
}

}  // namespace

Pipe::Pipe(std::shared_ptr<Sequential> model, PipeSettings settings)
    : model_(require_layers(std::move(model))),
      settings_(std::move(settings)),
      learning_rate_(settings_.optimizer({})->learning_rate()),  // throws for wrong settings before a rank runs
      schedule_(make_step(settings_, model_->size())),
      optimizers_(static_cast<std::size_t>(settings_.ranks)),
      ranks_({.ranks = settings_.ranks, .device = settings_.device, .timeout = settings_.timeout}) {
  if (!settings_.split.empty()) {
    throw_if<UsageError>(static_cast<int>(settings_.split.size()) != schedule_.stage_count(),
                         "Pipe: expected a split into {} stages, one per stage of the schedule, got {}",
                         schedule_.stage_count(), settings_.split.size());
    static_cast<void>(stagecoach::stages_of(*model_, settings_.split));  // throws for another number of layers
  }
}

std::map<int, std::shared_ptr<Sequential>> Pipe::stages_of_rank(int rank) const {
  std::map<int, std::shared_ptr<Sequential>> mine;
  for (const int stage : schedule_.stages_of(rank)) {
    mine.emplace(stage, stages_[static_cast<std::size_t>(stage)]);
  }
  return mine;
}

void Pipe::place(const Shape& images) {
  const Shape sample = images.with(0, 1);
  if (!shapes_.empty()) {
    throw_if<UsageError>(sample != shapes_[0], "Pipe: expected images of shape [N, …] with {} for one, got {}",
                         to_string(shapes_[0]), to_string(images));
    return;
  }
  static_cast<void>(model_->output_shape(sample));  // throws before anything is allocated
  const Shape microbatch = images.with(0, micro_batch_sizes(images[0], settings_.chunks)[0]);
  split_ = settings_.split.empty() ? measured_split(*model_, microbatch, schedule_, settings_) : settings_.split;
  stages_ = stagecoach::stages_of(*model_, split_);
  ranks_.run([&](Rank& rank) {
    const auto stages = stages_of_rank(rank.index);
    for (const auto& [number, stage] : stages) {
      stage->materialize(settings_.seed, rank.device);
    }
    auto optimizer = settings_.optimizer(joined(stages)->named_parameters());
    optimizer->set_learning_rate(learning_rate_);
    optimizers_[static_cast<std::size_t>(rank.index)] = std::move(optimizer);
  });
  shapes_ = shapes_entering(*model_, split_, sample);
}

void Pipe::set_learning_rate(double rate) {
  settings_.optimizer({})->set_learning_rate(rate);  // throws before anything changes
  learning_rate_ = rate;
  for (const auto& optimizer : optimizers_) {
    if (optimizer != nullptr) {
      optimizer->set_learning_rate(rate);
    }
  }
}

/// Calls `body` on each rank, with its pipeline, and with the schedule and the data of the batch.
void Pipe::run(const Schedule& schedule, const Tensor& images, const Tensor& labels, bool trains, const Body& body) {
  place(images.shape());
  const std::vector<std::int64_t> samples = micro_batch_sizes(images.size(0), settings_.chunks);
  const auto count = static_cast<int>(samples.size());
  const Schedule step = count < schedule.microbatches ? with_fewer_microbatches(schedule, count) : schedule;
  const NoGrad no_grad;  // of this thread: the micro-batches are views without history
  const std::vector<Tensor> inputs = micro_batches(images, count);
  const std::vector<Tensor> targets = labels.defined() ? micro_batches(labels, count) : std::vector<Tensor>{};
  ranks_.run([&](Rank& rank) {
    std::map<int, Stage> stages;
    for (const auto& [number, layers] : stages_of_rank(rank.index)) {
      stages.emplace(number, Stage(layers, recompute_of(settings_)));
    }
    Pipeline pipeline(std::move(stages), shapes_, schedule_, rank.comm);
    pipeline.train(trains);
    StepData data{.input = [&](int i) { return inputs[static_cast<std::size_t>(i)].to(rank.device); },
                  .labels = {},
                  .samples = samples};
    if (labels.defined()) {
      data.labels = [&](int i) { return targets[static_cast<std::size_t>(i)].to(rank.device); };
    }
    body(rank, pipeline, step, data);
  });
}

double Pipe::train_step(const Tensor& images, const Tensor& labels) {
  require_batch("Pipe", images, labels);
  double loss_sum = 0;
  run(schedule_, images, labels, true, [&](Rank& rank, Pipeline& pipeline, const Schedule& step, const StepData& data) {
    std::vector<Tensor> losses;
    pipeline.run(step, data, {.see_logits = [&](int, const Tensor& loss, const Tensor&) { losses.push_back(loss); }});
    for (const Tensor& loss : losses) {  // only on the rank of the last stage
      loss_sum += loss.item();
    }
    rank.comm.barrier();  // no rank makes the step if another's backward has failed
    Optimizer& optimizer = *optimizers_[static_cast<std::size_t>(rank.index)];
    optimizer.step();
    optimizer.zero_grad();
  });
  return loss_sum / static_cast<double>(images.size(0));
}

Tensor Pipe::forward(const Tensor& x) {
  require_images("Pipe", x);
  Tensor output;
  run(forwards_of(schedule_), x, {}, false, [&](Rank&, Pipeline& pipeline, const Schedule& step, const StepData& data) {
    const NoGrad no_grad;
    std::vector<Tensor> parts(data.samples.size());
    pipeline.run(step, data, {.see_logits = [&](int i, const Tensor&, const Tensor& logits) {
                   parts[static_cast<std::size_t>(i)] = logits;
                 }});
    if (parts[0].defined()) {  // only on the rank of the last stage
      output = cat(parts).to(Device{});
    }
  });
  return output;
}

}  // namespace stagecoach
