#include "chapters/common/pipeline_steps.h"

#include <utility>

#include "core/autograd/grad_mode.h"
#include "core/ops.h"

namespace stagecoach {
namespace {

/// Returns the batch in the form that the pipeline takes. Images are normalised on the first stage.
StepData data_of(const MicroBatches& batch) {
  return {.input = [&batch](int i) { return normalize(batch.images[static_cast<std::size_t>(i)]); },
          .labels = [&batch](int i) { return batch.labels[static_cast<std::size_t>(i)]; },
          .samples = batch.sizes,
          .of = batch.global_size};
}

/// Returns the plan's schedule, reduced to the number of micro-batches in the batch.
Schedule schedule_for(const Plan& plan, const MicroBatches& batch) {
  return with_fewer_microbatches(plan.schedule, static_cast<int>(batch.sizes.size()));
}

}  // namespace

Pipeline make_pipeline(const PipelineSettings& settings, const Plan& plan,
                       const std::map<int, std::shared_ptr<Sequential>>& stages, Communicator& comm) {
  const auto recompute = settings.recompute ? Stage::Recompute::yes : Stage::Recompute::no;
  std::map<int, Stage> running;
  for (const auto& [number, layers] : stages) {
    running.emplace(number, Stage(layers, recompute));
  }
  return {std::move(running), plan.shapes, plan.schedule, comm};
}

void forward_backward(Pipeline& pipeline, const Plan& plan, const MicroBatches& batch, EpochSums& sums,
                      const std::function<void(int stage)>& reduce) {
  const bool is_whole = static_cast<int>(batch.sizes.size()) == plan.schedule.microbatches;
  const Schedule rest = is_whole ? Schedule{} : schedule_for(plan, batch);  // a last batch with fewer images
  const Schedule& schedule = is_whole ? plan.schedule : rest;
  const Hooks hooks{
      .see_logits = [&](int i, const Tensor& loss,
                        const Tensor& logits) { sums.add(loss, logits, batch.labels[static_cast<std::size_t>(i)]); },
      .reduce =
          [&](const Action& reduction) {
            if (reduce) {
              reduce(reduction.stage);
            }
          }};
  pipeline.run(schedule, data_of(batch), hooks);
}

void update(ActionLog& log, Optimizer& optimizer) {
  const ActionLog::Scope scope(log);
  optimizer.step();
  optimizer.zero_grad();
}

void evaluate(Pipeline& pipeline, const Plan& plan, Epoch& epoch, MicroBatchLoader& loader) {
  const NoGrad no_grad;  // nothing is kept for a backward
  pipeline.train(false);
  const Schedule forwards = forwards_of(plan.schedule);
  for (const MicroBatches& batch : epoch.test_batches(loader)) {
    const Hooks hooks{.see_logits = [&](int i, const Tensor&, const Tensor& logits) {
      count_correct(logits, batch.labels[static_cast<std::size_t>(i)], epoch.test_sums().correct);
    }};
    if (const auto count = static_cast<int>(batch.sizes.size()); count == forwards.microbatches) {
      pipeline.run(forwards, data_of(batch), hooks);
    } else {  // a last batch with fewer images
      pipeline.run(with_fewer_microbatches(forwards, count), data_of(batch), hooks);
    }
  }
  pipeline.train(true);
}

}  // namespace stagecoach
