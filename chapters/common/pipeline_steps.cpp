#include "chapters/common/pipeline_steps.h"

#include <utility>

#include "core/autograd/grad_mode.h"
#include "core/ops.h"

namespace stagecoach {
namespace {

/// The batch as the pipeline takes it: pictures are normalised where they enter.
StepData data_of(const Step& step) {
  return {.input = [&step](int i) { return normalize(step.images[static_cast<std::size_t>(i)]); },
          .labels = [&step](int i) { return step.labels[static_cast<std::size_t>(i)]; },
          .samples = step.sizes,
          .of = step.pictures};
}

/// The plan's schedule without the micro-batches that the batch has not.
Schedule schedule_for(const Plan& plan, const Step& step) {
  return with_fewer_microbatches(plan.schedule, static_cast<int>(step.sizes.size()));
}

}  // namespace

Pipeline open_pipeline(const PipelineSettings& settings, const Plan& plan,
                       const std::map<int, std::shared_ptr<Sequential>>& stages, Communicator& comm) {
  const auto recompute = settings.recompute ? Stage::Recompute::yes : Stage::Recompute::no;
  std::map<int, Stage> running;
  for (const auto& [number, layers] : stages) {
    running.emplace(number, Stage(layers, recompute));
  }
  return {std::move(running), plan.shapes, plan.schedule, comm};
}

void run_step(Pipeline& pipeline, const Plan& plan, const Step& step, EpochSums& sums,
              const std::function<void(int stage)>& reduce) {
  const bool is_whole = static_cast<int>(step.sizes.size()) == plan.schedule.microbatches;
  const Schedule rest = is_whole ? Schedule{} : schedule_for(plan, step);  // a last batch with fewer images
  const Schedule& schedule = is_whole ? plan.schedule : rest;
  const auto& actions = schedule.ranks[static_cast<std::size_t>(pipeline.rank())];
  const Hooks hooks{.see_scores =
                        [&](int i, const Tensor& loss, const Tensor& scores) {
                          accumulate(loss, sums.loss);
                          count_correct(scores, step.labels[static_cast<std::size_t>(i)], sums.correct);
                        },
                    .reduce =
                        [&](std::size_t action_index) {
                          if (reduce) {
                            reduce(actions[action_index].stage);
                          }
                        }};
  pipeline.run(schedule, data_of(step), hooks);
}

double accuracy(Pipeline& pipeline, const Plan& plan, StepLoader& loader, Communicator& comm,
                const std::function<void()>& after_batch) {
  const NoGrad no_grad;  // nothing is kept for a backward
  pipeline.train(false);
  Tensor correct = Tensor::zeros({}, DType::int32, comm.device());
  std::int64_t pictures = 0;
  const Schedule forwards = forwards_of(plan.schedule);
  loader.start_epoch(1);
  while (const auto step = loader.next()) {
    const auto see_scores = [&](int i, const Tensor&, const Tensor& scores) {
      count_correct(scores, step->labels[static_cast<std::size_t>(i)], correct);
    };
    const Hooks hooks{.see_scores = see_scores};
    if (const auto count = static_cast<int>(step->sizes.size()); count == forwards.microbatches) {
      pipeline.run(forwards, data_of(*step), hooks);
    } else {  // a last batch with fewer images
      pipeline.run(with_fewer_microbatches(forwards, count), data_of(*step), hooks);
    }
    pictures += step->pictures;
    after_batch();
  }
  pipeline.train(true);
  return correct.item() / static_cast<double>(pictures);
}

}  // namespace stagecoach
