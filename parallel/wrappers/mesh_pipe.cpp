#include "parallel/wrappers/mesh_pipe.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/autograd/grad_mode.h"
#include "core/base/throw_if.h"
#include "core/ops.h"
#include "datasets/shares.h"
#include "parallel/data_parallel/average_gradients.h"
#include "parallel/pipeline/tied_ranks.h"
#include "parallel/schedule/lower.h"
#include "parallel/tensor_parallel/tensor_parallel_layers.h"
#include "parallel/wrappers/mesh_role.h"
#include "parallel/wrappers/pipe_schedule.h"
#include "parallel/wrappers/require_batch.h"
#include "parallel/wrappers/require_layers.h"
#include "parallel/wrappers/skipping_stages.h"

namespace stagecoach {
namespace {

/// Returns the settings of a replica's pipeline.
PipeSettings replica_settings(PipeSettings settings, const MeshSizes& sizes) {
  throw_if<UsageError>(settings.ranks != 0 && settings.ranks != sizes.pipeline,
                       "MeshPipe: expected as many ranks as the mesh has in a pipeline, {}, got {}; leave `ranks` out",
                       sizes.pipeline, settings.ranks);
  settings.ranks = sizes.pipeline;
  return settings;
}

/// With one rank per group, layers are those of one device: a group's sums are rounded differently.
std::shared_ptr<Sequential> make_model_of_rank(const MeshPipe::MakeModel& make_model, Communicator& tensor_group) {
  return tensor_group.size() > 1 ? make_model(TensorParallelLayers(tensor_group)) : make_model(LayerFactory());
}

/// Throws UsageError for tied weights of other names or shapes, whole or as this rank's slices.
void require_tied(const TiedWeights::Names& names, const MeshPipe::MakeModel& make_model, Communicator& tensor_group) {
  const auto require = [&](const std::shared_ptr<Sequential>& model) {
    model->materialize(0, Device{DeviceType::meta});
    static_cast<void>(TiedWeights(model->named_parameters(), names));
  };
  require(make_model(LayerFactory()));
  if (tensor_group.size() > 1) {
    require(make_model_of_rank(make_model, tensor_group));
  }
}

/// Ties this rank's parameters pair by pair: so the gradients of several copies are added in the order of the pairs,
/// whichever ranks hold them.
void tie_pairs(Optimizer& optimizer, const NamedTensors& mine, const TiedWeights::Names& names, Communicator& ranks) {
  for (const auto& pair : names) {
    if (find_tensor(mine, pair.first).defined() && find_tensor(mine, pair.second).defined()) {
      tie(optimizer, TiedWeights(mine, {pair}));
    }
    tie_ranks(optimizer, mine, {pair}, ranks);
  }
}

/// Throws UsageError for targets that are no labels, and for a count of another kind.
void require_countable(const Tensor& target, const Tensor& correct, Device device) {
  throw_if<UsageError>(target.dtype() != DType::int32,
                       "MeshPipe: expected labels int32 [N, …] to count correct predictions, got targets {}; leave "
                       "the count out",
                       describe(target));
  throw_if<UsageError>(
      !correct.defined() || correct.dtype() != DType::int32 || correct.numel() != 1 || correct.device() != device,
      "MeshPipe: expected a count int32 [] on {}, the rank's device, got {}; give epoch.train_sums().correct, or "
      "make it there",
      to_string(device), describe(correct));
}

}  // namespace

MeshPipe::MeshPipe(Communicator& world, const MeshSizes& sizes, const MakeModel& make_model, PipeSettings settings)
    : world_(world),
      sizes_(sizes),
      at_(position_of(world.rank(), sizes)),
      mesh_(world, sizes),
      settings_(replica_settings(std::move(settings), sizes)),
      loss_(settings_.loss.value_or(LossFunction())),
      model_(require_layers("MeshPipe", make_model_of_rank(make_model, mesh_.tensor()))),
      schedule_(with_reductions(schedule_of(settings_, model_->size()))),
      split_(settings_.split.empty() ? split_by_layers(model_->size(), schedule_.stage_count()) : settings_.split) {
  require_type_of_weights("MeshPipe", settings_.type);
  if (!settings_.tied.empty()) {
    require_tied(settings_.tied, make_model, mesh_.tensor());
  }
  const auto stages = stages_of(*model_, split_);
  for (const int stage : schedule_.stages_of(at_.pipeline)) {
    stages_.emplace(stage, stages[static_cast<std::size_t>(stage)]);
  }
  layers_ = joined(stages_);
}

void MeshPipe::place(const Shape& inputs, DType type) { place(Tensor::empty(inputs, type, Device{DeviceType::meta})); }

void MeshPipe::place(const PipeInput& example) {
  if (pipeline_ != nullptr) {
    require_like("MeshPipe", example.x, sample_, input_type_);
    return;
  }
  sample_ = example.x.shape().with(0, 1);
  input_type_ = example.x.dtype();
  std::vector<Shape> entering;
  Shape shape = sample_;
  std::map<int, Stage> running;
  static_cast<void>(model_->output_shape(sample_));  // throws before anything is allocated
  const auto stages = skipping_stages(*model_, split_, sample_);
  layers_->materialize(settings_.seed, world_.device(), settings_.type);
  for (std::size_t s = 0; s < stages.size(); ++s) {
    entering.push_back(std::exchange(shape, stages[s]->output_shape(shape)));
    if (stages_.contains(static_cast<int>(s))) {
      running.emplace(static_cast<int>(s),
                      Stage(stages[s], settings_.recompute ? Stage::Recompute::yes : Stage::Recompute::no, loss_));
    }
  }
  const NamedTensors mine = layers_->named_parameters();
  optimizer_ = settings_.optimizer(without_copies(mine, settings_.tied));
  tie_pairs(*optimizer_, mine, settings_.tied, mesh_.pipeline());
  pipeline_ =
      std::make_unique<Pipeline>(std::move(running), std::move(entering), schedule_, mesh_.pipeline(), settings_.type);
}

Optimizer& MeshPipe::optimizer() {
  throw_if<UsageError>(optimizer_ == nullptr,
                       "MeshPipe: the layers have no memory yet, so there is no optimizer; call place(shape) first");
  return *optimizer_;
}

RankRole MeshPipe::role() {
  RankRole role{.stages = stages_text(split_, schedule_),
                .loss_rank = schedule_.stage_to_rank.back(),
                .ideal_idle = ideal_idle(schedule_, settings_),
                .parts = BatchParts{sizes_.data, schedule_.microbatches, sizes_.tensor}};
  for (int stage = 0; stage < schedule_.stage_count(); ++stage) {
    for (int i = 0; i < split_[static_cast<std::size_t>(stage)]; ++i) {
      role.layers.emplace_back(model_->name(static_cast<int>(role.layers.size())),
                               rank_at({.pipeline = schedule_.rank_of(stage, 0)}, sizes_));
    }
  }
  return mesh_role(std::move(role), world_.rank(), sizes_, {}, &mesh_.tensor());
}

/// Sums the gradients of a stage over the replicas; each is a part of that of the mean loss of the whole batch.
void MeshPipe::average(int stage) {
  NamedTensors trained = stages_.at(stage)->named_parameters();
  std::erase_if(trained, [](const auto& named) { return !named.second.requires_grad(); });
  average_gradients(trained, 1, mesh_.data());
}

/// Runs `schedule` on this replica's share of a batch, within NoGrad in evaluation mode. Returns the sum of the losses.
double MeshPipe::run(const Schedule& schedule, const PipeInput& input, const Tensor& target, Tensor* correct) {
  require_batch("MeshPipe", input.x, target, settings_.loss, settings_.type);
  if (correct != nullptr) {
    require_countable(target, *correct, world_.device());
  }
  const std::int64_t batch = input.x.size(0);
  throw_if<UsageError>(batch < sizes_.data,
                       "MeshPipe: expected a batch of at least one sample for each of {} replicas, got {}; use larger "
                       "batches, or leave the last one out",
                       sizes_.data, batch);
  for (const auto& [name, value] : input.values) {
    require_value("MeshPipe", name, value, input.x);
  }
  place(input);
  throw_if<UsageError>(
      grad_enabled() && optimizer_->clips() && !optimizer_->sums_over_ranks() && sizes_.pipeline * sizes_.tensor > 1,
      "MeshPipe: expected the gradients of all ranks to clip their norm, got those of this rank; call "
      "clip_norm before Run::set_up_checkpoints");
  const Share share = share_of(batch, at_.data, sizes_.data);
  const std::vector<std::int64_t> samples = micro_batch_sizes(share.count, schedule.microbatches);
  const auto count = static_cast<int>(samples.size());
  const auto part_of = [&](const Tensor& whole, int i) {  // micro-batch i of the share
    const Share part = share_of(share.count, i, count);
    return whole.narrow(share.first + part.first, part.count).to(world_.device());
  };
  const auto values = [&](int i) {
    NamedTensors part = input.values;
    for (auto& [name, value] : part) {
      value = part_of(value, i);
    }
    return part;
  };
  pipeline_->train(grad_enabled());
  std::vector<Tensor> losses(samples.size());  // on the ranks of the last stage
  const bool counts = at_.tensor == 0;         // the ranks of a group compute the same
  pipeline_->run(count < schedule.microbatches ? with_fewer_microbatches(schedule, count) : schedule,
                 {.input = [&](int i) { return part_of(input.x, i); },
                  .labels = [&](int i) { return part_of(target, i); },
                  .samples = samples,
                  .of = batch,
                  .position = BatchPosition{.step = optimizer_->steps_done(), .first = share.first},
                  .values = values},
                 {.see_logits =
                      [&](int i, const Tensor& loss, const Tensor& predictions) {
                        losses[static_cast<std::size_t>(i)] = loss;
                        if (counts && correct != nullptr) {
                          count_correct(predictions, part_of(target, i), *correct);
                        }
                      },
                  .reduce = sizes_.data > 1 ? [this](const Action& action) { average(action.stage); }
                                            : std::function<void(const Action&)>()});
  double sum = 0;
  for (std::size_t i = 0; i < losses.size() && counts; ++i) {
    sum += losses[i].defined() ? losses[i].item() * loss_.weight(samples[i]) : 0;
  }
  return sum;
}

double MeshPipe::train_step(const PipeInput& input, const Tensor& target, Tensor* correct) {
  const double loss_sum = run(schedule_, input, target, correct);
  pipeline_->update(*optimizer_);
  return loss_sum;
}

double MeshPipe::evaluate(const PipeInput& input, const Tensor& target, Tensor* correct) {
  const NoGrad no_grad;  // nothing is kept for a backward
  return run(forwards_of(schedule_), input, target, correct);
}

}  // namespace stagecoach
