#include "chapters/common/pipeline_steps.h"

#include <utility>

#include "chapters/common/bug_hooks.h"
#include "chapters/common/initial_weights.h"
#include "chapters/common/open.h"
#include "chapters/common/sample.h"
#include "core/autograd/grad_mode.h"
#include "core/ops.h"
#include "parallel/pipeline/tied_ranks.h"

namespace stagecoach {
namespace {

/// Returns the stages of a rank, by number, with their initial weights on its device.
std::map<int, std::shared_ptr<Sequential>> make_stages(const Plan& plan, const Dataset& data, const Rank& rank,
                                                       const std::shared_ptr<const LayerFactory>& layers) {
  const TrainingSettings& training = plan.settings.training;
  const auto parts = stages_of(*make_model_of(training, data, layers), plan.split);
  std::map<int, std::shared_ptr<Sequential>> mine;
  for (int s = 0; s < plan.stages(); ++s) {
    if (plan.schedule.holds(rank.index, s)) {
      const auto& part = parts[static_cast<std::size_t>(s)];
      if (s + 1 == plan.stages()) {
        put_bug_into(*part, training);
      }
      part->materialize(training.seed, rank.device);
      mine.emplace(s, part);
    }
  }
  load_initial_weights(training, data, *joined(mine));
  return mine;
}

/// Returns the rank's loader, with images if the rank holds the first stage, and with labels if it holds the first or
/// the last one.
MicroBatchLoader make_micro_batch_loader(const Plan& plan, const Dataset& data, const Rank& rank, LoaderFor purpose,
                                         const Shard& shard) {
  using Needs = MicroBatchLoader::Needs;
  const auto of_last = plan.schedule.holds(rank.index, plan.stages() - 1) ? Needs::targets : Needs::nothing;
  const auto needs = plan.schedule.holds(rank.index, 0) ? Needs::inputs_and_targets : of_last;
  return make_rank_loader(plan.settings, data, purpose, rank, needs, plan.settings.training.microbatches, shard);
}

/// Returns the pipeline that runs a rank's stages.
Pipeline make_pipeline(const Plan& plan, const std::map<int, std::shared_ptr<Sequential>>& stages, Communicator& comm,
                       const LossFunction& loss) {
  std::map<int, Stage> running;
  for (const auto& [number, layers] : stages) {
    running.emplace(number, Stage(with_bug(layers, plan.settings.training.inject), plan.recompute, loss, plan.record));
  }
  return {std::move(running), plan.shapes, plan.schedule, comm};
}

/// Returns the batch in the form that the pipeline takes.
StepData data_of(const MicroBatches& batch) {
  return {.input = [&batch](int i) { return batch.input(i); },
          .labels = [&batch](int i) { return batch.target(i); },
          .samples = batch.sizes,
          .of = batch.global_size,
          .position = batch.position};
}

/// Runs `schedule` for a batch; for a last batch with fewer images, with fewer micro-batches.
void run(Pipeline& pipeline, const Schedule& schedule, const MicroBatches& batch, const Hooks& hooks) {
  if (batch.count() == schedule.microbatches) {
    pipeline.run(schedule, data_of(batch), hooks);
  } else {
    pipeline.run(with_fewer_microbatches(schedule, batch.count()), data_of(batch), hooks);
  }
}

}  // namespace

PipelineWorker::PipelineWorker(const Plan& plan, const TrainTest& data, const Rank& rank, const PipelineShare& share)
    : stages(make_stages(plan, data.train, rank, share.layers)),
      layers(joined(stages)),
      optimizer(make_optimizer(plan.settings.training, layers->named_parameters())),
      pipeline(make_pipeline(plan, stages, rank.comm, share.loss)),
      train_loader(make_micro_batch_loader(plan, data.train, rank, LoaderFor::training, share.shard)),
      test_loader(make_micro_batch_loader(plan, data.test, rank, LoaderFor::testing, share.shard)) {
  tie_ranks(*optimizer, layers->named_parameters(), tied_names(plan.settings.training), rank.comm);
}

void forward_backward(Pipeline& pipeline, const Plan& plan, const MicroBatches& batch, EpochSums& sums,
                      const std::function<void(int stage)>& reduce) {
  const Hooks hooks{
      .see_logits = [&](int i, const Tensor& loss, const Tensor& logits) { sums.add(loss, logits, batch.target(i)); },
      .reduce =
          [&](const Action& reduction) {
            if (reduce) {
              reduce(reduction.stage);
            }
          }};
  run(pipeline, plan.schedule, batch, hooks);
}

void StepByHand::forward(int i) {
  const BatchScope position(batch_.position_of(i));
  const bool x_needs_grad = !messages_.is_first();
  const Tensor x = messages_.is_first() ? batch_.input(i) : messages_.receive_forward(i);
  if (messages_.is_last()) {
    Tensor logits;
    const Tensor loss_sum = stage_.forward_with_loss(i, x, batch_.target(i), x_needs_grad, &logits);
    sums_.add(loss_sum, logits, batch_.target(i));
  } else {
    messages_.send_forward(i, stage_.forward(i, x, x_needs_grad));
  }
}

void StepByHand::backward(int i) {
  const double share = 1.0 / static_cast<double>(batch_.global_size);
  const Tensor grad = messages_.is_last() ? Tensor::full({}, share, DType::float32, sums_.loss.device())
                                          : messages_.receive_backward(i);
  const Tensor grad_x = stage_.backward(i, grad);
  if (!messages_.is_first()) {
    messages_.send_backward(i, grad_x);
  }
}

void evaluate(Pipeline& pipeline, const Plan& plan, Epoch& epoch, MicroBatchLoader& loader, EpochSums* sums) {
  const NoGrad no_grad;  // nothing is kept for a backward
  pipeline.train(false);
  const Schedule forwards = forwards_of(plan.schedule);
  Tensor& correct = sums == nullptr ? epoch.test_sums().correct : sums->correct;
  for (const MicroBatches& batch : epoch.test_batches(loader)) {
    const Hooks hooks{.see_logits = [&](int i, const Tensor&, const Tensor& logits) {
      count_correct(logits, batch.target(i), correct);
    }};
    run(pipeline, forwards, batch, hooks);
  }
  pipeline.train(true);
}

void print_sample(const Settings& settings, Pipeline& pipeline, const Schedule& schedule, Communicator& comm,
                  bool prints, Communicator* tensor_group) {
  const bool is_cut = settings.training.class_parallel && tensor_group != nullptr;
  const Schedule forwards = forwards_of(with_fewer_microbatches(schedule, 1));
  const auto forward = [&](const Tensor& tokens) {
    Tensor found;
    pipeline.run(forwards, {.input = [&](int) { return tokens.to(comm.device()); }, .labels = {}, .samples = {1}},
                 {.see_logits = [&](int, const Tensor&, const Tensor& logits) {
                   found = is_cut ? cat_columns(tensor_group->all_gather(logits)) : logits;
                 }});
    return found;
  };
  pipeline.train(false);
  print_sample(
      settings, forward, [&](int byte) { return static_cast<int>(comm.sum_numbers({static_cast<double>(byte)})[0]); },
      prints);
  pipeline.train(true);
}

}  // namespace stagecoach
