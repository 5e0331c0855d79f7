#include "parallel/wrappers/pipe.h"

#include <algorithm>
#include <utility>

#include "core/autograd/grad_mode.h"
#include "core/base/throw_if.h"
#include "core/ops.h"
#include "datasets/shares.h"
#include "parallel/pipeline/fastest_split.h"
#include "parallel/pipeline/layer_profile.h"
#include "parallel/wrappers/pipe_schedule.h"
#include "parallel/wrappers/require_batch.h"
#include "parallel/wrappers/require_layers.h"
#include "parallel/wrappers/skipping_stages.h"

namespace stagecoach {
namespace {

Stage::Recompute recompute_of(const PipeSettings& settings) {
  return settings.recompute ? Stage::Recompute::yes : Stage::Recompute::no;
}

World world_of(const PipeSettings& settings, int ranks) {
  return {.ranks = ranks, .device = settings.device, .timeout = settings.timeout};
}

/// Returns the split whose steps are as fast as possible for micro-batches of `samples` samples. Measures at least two
/// samples, because batch norm in training needs more than one value per channel.
Split measured_split(Sequential& model, const PipeInput& example, std::int64_t samples, const Schedule& schedule,
                     const PipeSettings& settings) try {
  const std::int64_t measured = std::max<std::int64_t>(samples, 2);
  NamedTensors zeros;
  for (const auto& [name, value] : example.values) {
    zeros.emplace_back(name, Tensor::zeros(value.shape().with(0, measured), value.dtype(), Device{settings.device}));
  }
  const NamedValues values(std::move(zeros));
  const BatchScope scope(BatchPosition{});  // for layers that draw random numbers
  const auto profile = profile_layers(model, example.x.shape().with(0, measured), Device{settings.device}, 5,
                                      example.x.dtype(), settings.type);
  return fastest_split(profile, schedule, recompute_of(settings));
} catch (const Error& error) {
  throw Error(fmt::format(
      "Pipe: the layers have failed when they were measured for inputs {}{}: {}; if the inputs are others, call "
      "place(shape, type) with theirs",
      name_of(example.x.dtype()), to_string(example.x.shape()), error.what()));
}

}  // namespace

Pipe::Pipe(std::shared_ptr<Sequential> model, PipeSettings settings)
    : model_(require_layers("Pipe", std::move(model))),
      settings_(std::move(settings)),
      loss_(settings_.loss.value_or(LossFunction())),
      learning_rate_(settings_.optimizer({})->learning_rate()),  // throws for wrong settings before a rank runs
      schedule_(schedule_of(settings_, model_->size())),
      ranks_(std::make_shared<RankPool>(world_of(settings_, schedule_.rank_count()))) {
  require_type_of_weights("Pipe", settings_.type);
  if (!settings_.split.empty()) {
    static_cast<void>(stagecoach::stages_of(*model_, settings_.split));  // throws for another number of layers
  }
}

RankRole Pipe::role() const {
  return {
      .ideal_idle = ideal_idle(schedule_, settings_), .parts = BatchParts{1, schedule_.microbatches}, .pool = ranks_};
}

std::map<int, std::shared_ptr<Sequential>> Pipe::stages_of_rank(int rank) const {
  std::map<int, std::shared_ptr<Sequential>> mine;
  for (const int stage : schedule_.stages_of(rank)) {
    mine.emplace(stage, stages_[static_cast<std::size_t>(stage)]);
  }
  return mine;
}

void Pipe::place(const Shape& inputs, DType type) { place(Tensor::empty(inputs, type, Device{DeviceType::meta})); }

void Pipe::place(const PipeInput& example) {
  const Shape& inputs = example.x.shape();
  const DType type = example.x.dtype();
  const Shape sample = inputs.with(0, 1);
  if (!shapes_.empty()) {
    require_like("Pipe", example.x, shapes_[0], input_type_);
    return;
  }
  static_cast<void>(model_->output_shape(sample));  // throws before anything is allocated
  const std::int64_t samples = micro_batch_sizes(inputs[0], schedule_.microbatches)[0];
  split_ = settings_.split.empty() ? measured_split(*model_, example, samples, schedule_, settings_) : settings_.split;
  stages_ = skipping_stages(*model_, split_, sample);
  ranks_->run([&](Rank& rank) {
    for (const auto& [number, stage] : stages_of_rank(rank.index)) {
      stage->materialize(settings_.seed, rank.device, settings_.type);
    }
  });
  const TiedWeights tied(model_->named_parameters(), settings_.tied);
  optimizer_ = settings_.optimizer(tied.without_copies(model_->named_parameters()));
  tie(*optimizer_, tied);
  optimizer_->set_learning_rate(learning_rate_);
  optimizer_->count_samples_with(
      [next = next_, optimizer = optimizer_.get()] { return next->step == optimizer->steps_done() ? next->first : 0; });
  input_type_ = type;
  Shape shape = sample;
  for (const auto& stage : stages_) {
    shapes_.push_back(shape);
    shape = stage->output_shape(shape);
  }
}

Optimizer& Pipe::optimizer() {
  throw_if<UsageError>(optimizer_ == nullptr,
                       "Pipe: the layers have no memory yet, so there is no optimizer; call place(shape) first");
  return *optimizer_;
}

void Pipe::set_learning_rate(double rate) {
  settings_.optimizer({})->set_learning_rate(rate);  // throws before anything changes
  learning_rate_ = rate;
  if (optimizer_ != nullptr) {
    optimizer_->set_learning_rate(rate);
  }
}

std::unique_ptr<Pipeline> Pipe::make_pipeline(Rank& rank) const {
  std::map<int, Stage> stages;
  for (const auto& [number, layers] : stages_of_rank(rank.index)) {
    stages.emplace(number, Stage(layers, recompute_of(settings_), loss_));
  }
  return std::make_unique<Pipeline>(std::move(stages), shapes_, schedule_, rank.comm, settings_.type);
}

/// Begins a batch. In training, layers that draw random numbers get the number of steps that are done, so that a
/// resumed training goes on as it would have, and the number of samples since then, as if all were one batch.
std::unique_ptr<PipeBatch> Pipe::begin(const PipeInput& input, bool trains) {
  for (const auto& [name, value] : input.values) {
    require_value("Pipe", name, value, input.x);
  }
  place(input);
  auto batch = std::make_unique<PipeBatch>(ranks_, micro_batch_sizes(input.x.size(0), schedule_.microbatches),
                                           [this](Rank& rank) { return make_pipeline(rank); });
  batch->trains = trains;
  if (trains) {
    throw_if<UsageError>(optimizer_->parameters().empty(),
                         "Pipe: expected a model with parameters to train, got one without; call forward");
    const auto has_gradient = [](const auto& named) { return named.second.grad().defined(); };
    const auto& parameters = optimizer_->parameters();
    throw_if<UsageError>(
        has_stepped_ && std::any_of(parameters.begin(), parameters.end(), has_gradient),
        "Pipe: expected no gradients after step(), got those that it has used; call zero_grad() first");
    has_stepped_ = false;
    *next_ = {.step = optimizer_->steps_done(), .first = optimizer_->samples_since_step()};
    batch->position = BatchScope::current().value_or(*next_);
    next_->first += input.x.size(0);
  }
  return batch;
}

/// Returns the micro-batches of a batch.
PipeBatch::Parts Pipe::parts_of(const PipeInput& input) const {
  PipeBatch::Parts parts{.inputs = micro_batches(input.x, schedule_.microbatches)};
  for (const auto& [name, value] : input.values) {
    const std::vector<Tensor> values = micro_batches(value, schedule_.microbatches);
    parts.values.resize(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      parts.values[i].emplace_back(name, values[i]);
    }
  }
  return parts;
}

double Pipe::backward(const PipeInput& input, const Tensor& target, Tensor* output) {
  require_batch("Pipe", input.x, target, settings_.loss, settings_.type);
  const auto batch = begin(input, true);
  const NoGrad no_grad;  // of this thread: the micro-batches are views without history
  const std::vector<std::int64_t>& samples = batch->samples();
  std::vector<Tensor> losses(samples.size());
  std::vector<Tensor> outputs(samples.size());
  PipeBatch::Parts parts = parts_of(input);
  parts.targets = micro_batches(target, schedule_.microbatches);
  batch->run(schedule_, parts, {.see_logits = [&](int i, const Tensor& loss, const Tensor& predictions) {
               losses[static_cast<std::size_t>(i)] = loss;
               outputs[static_cast<std::size_t>(i)] = output == nullptr ? Tensor{} : predictions;
             }});
  if (output != nullptr) {
    *output = cat(outputs);
  }
  double loss_sum = 0;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    loss_sum += losses[i].item() * loss_.weight(samples[i]);
  }
  return loss_sum / static_cast<double>(input.x.size(0));
}

void Pipe::step() {
  optimizer().step(
      [this](const Optimizer::UpdateDevice& update) { ranks_->run([&](Rank& rank) { update(rank.device); }); });
  has_stepped_ = true;
}

void Pipe::zero_grad() {
  for (auto& [name, parameter] : model_->named_parameters()) {
    Tensor(parameter).zero_grad();
  }
  next_->first = 0;
}

double Pipe::train_step(const PipeInput& input, const Tensor& target) {
  const double loss = backward(input, target);
  step();
  zero_grad();
  return loss;
}

/// Returns the output of all micro-batches, on the device of the last stage.
Tensor Pipe::run_forwards(PipeBatch& batch, const PipeInput& input) const {
  const NoGrad no_grad;
  std::vector<Tensor> outputs(batch.samples().size());
  batch.run(forwards_of(schedule_), parts_of(input), {.see_logits = [&](int i, const Tensor&, const Tensor& output) {
              outputs[static_cast<std::size_t>(i)] = output;
            }});
  return cat(outputs);
}

Tensor Pipe::forward_for_loss(const PipeInput& input) {
  require_input("Pipe", input.x, settings_.type);
  throw_if<UsageError>(!grad_enabled(),
                       "Pipe: forward_for_loss was called within NoGrad, where its output has no backward; call "
                       "forward, or leave the scope");
  auto batch = begin(input, true);
  batch->wants_input_gradient = input.x.requires_grad();
  const Tensor output = run_forwards(*batch, input);
  return with_backward(output, input.x, std::move(batch), backwards_of(schedule_));
}

Tensor Pipe::forward(const PipeInput& input) {
  require_input("Pipe", input.x, settings_.type);
  return run_forwards(*begin(input, false), input).to(Device{});
}

}  // namespace stagecoach
