/// @file
/// Chapter 4: PipeDream. The pipeline never drains: batches follow each other, and each stage updates its weights as
/// soon as it has a gradient.
///
/// Then a micro-batch meets one version of a stage's weights on its way forward, and there is a newer one when it comes
/// back. A backward through other weights than those of its forward is no gradient. So a stage keeps old versions, and
/// --versions says which one a forward takes. What a rank does at each action is in `run_epoch`.

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>

#include "chapters/04_pipedream/admission.h"
#include "chapters/04_pipedream/batch_stream.h"
#include "chapters/04_pipedream/stream_plan.h"
#include "chapters/04_pipedream/stream_prediction.h"
#include "chapters/common/open.h"
#include "chapters/common/pipeline_steps.h"
#include "chapters/common/program.h"
#include "core/autograd/node.h"
#include "core/ops.h"
#include "parallel/data_parallel/average_gradients.h"
#include "parallel/pipeline/delayed_rate.h"
#include "parallel/pipeline/pipeline.h"
#include "parallel/pipeline/weight_versions.h"
#include "parallel/schedule/ledger.h"

namespace stagecoach {
namespace {

/// A rank, and the replica of the stage that it holds.
struct Place {
  const Settings& settings;
  const StreamPlan& plan;
  Rank& rank;
  int delay;                               // the updates by which its gradients come too late
  std::unique_ptr<Communicator> replicas;  // the ranks that hold this stage
  std::shared_ptr<Sequential> layers;
  std::unique_ptr<Optimizer> optimizer;
  Pipeline pipeline;
};

/// Trains to the end of the epoch, and lets the pipeline drain.
void run_epoch(Place& here, MicroBatchLoader& loader, std::int64_t pictures, Epoch& epoch) {
  const std::int64_t first_batch = epoch.steps_done();
  const std::int64_t batches_before = (epoch.number() - 1) * loader.batches();  // in earlier epochs
  const std::vector<std::int64_t> sizes = here.plan.sizes(pictures, first_batch);
  if (sizes.empty()) {
    return;  // a run that was stopped behind the last batch
  }
  const Schedule schedule = here.plan.schedule_for(sizes.size());
  const Ledger ledger = make_ledger(schedule, here.plan.versions);
  const auto& actions = schedule.ranks[static_cast<std::size_t>(here.rank.index)];
  const NamedTensors parameters = here.layers->named_parameters();
  const RateSettings rate{here.settings.training.lr, here.settings.training.lr_warmup,
                          here.settings.training.lr_discount};
  WeightVersions weights(parameters, schedule, ledger, here.rank.index);
  Admission admission(schedule, here.rank.index, first_batch, loader.batches(), epoch);
  BatchStream stream([&] { return epoch.next_batch(loader); }, here.plan.batch());

  const Hooks hooks{
      .see_scores = [&](int i, const Tensor& loss,
                        const Tensor& scores) { epoch.train_sums().add(loss, scores, stream.labels(i)); },
      .admits = [&](std::size_t place) { return admission.admits(place); },
      .before =
          [&](std::size_t place) {
            weights.begin(place);  // the parameters name the version that this action uses, or makes
          },
      .after =
          [&](std::size_t place) {
            weights.end(place);  // versions that nobody needs any more are freed
            if (actions[place].operation == Operation::update) {
              for (const std::int64_t batch : admission.batches_of(place)) {
                epoch.add_step(
                    std::min(here.settings.training.batch_size, pictures - batch * here.settings.training.batch_size));
              }
            }
          },
      .reduce =
          [&](std::size_t place) {
            average_gradients(parameters, static_cast<int>(admission.batches_of(place).size()), *here.replicas);
          },
      .update =
          [&](std::size_t place) {
            const std::vector<std::int64_t> batches = admission.batches_of(place);
            here.optimizer->set_learning_rate(delayed_rate(rate, here.delay, batches_before + batches.front()));
            here.optimizer->step();
            here.optimizer->zero_grad();
          }};
  here.pipeline.run(schedule, stream.data(sizes), hooks);
  admission.finish();
  epoch.stop_if_refused();
}

/// Tests the model: ranks that hold the last stage count correct predictions. A few batches at a time are on their way:
/// without backwards nothing else holds the first stage back.
void evaluate(Place& here, Epoch& epoch, MicroBatchLoader& loader, std::int64_t pictures) {
  const NoGrad no_grad;
  here.pipeline.train(false);
  epoch.start_test();
  loader.start_epoch(1);
  BatchStream stream([&] { return loader.next(); }, here.plan.batch());
  const auto see_scores = [&](int i, const Tensor&, const Tensor& scores) {
    count_correct(scores, stream.labels(i), epoch.test_sums().correct);
  };
  const std::int64_t at_once = std::int64_t{2} * here.rank.world;  // batches
  for (std::int64_t first = 0; first < loader.batches(); first += at_once) {
    const std::int64_t end = std::min(pictures, (first + at_once) * here.settings.training.batch_size);
    const std::vector<std::int64_t> sizes = here.plan.sizes(end, first);
    here.pipeline.run(forwards_of(here.plan.schedule_for(sizes.size())), stream.data(sizes, first),
                      {.see_scores = see_scores});
    epoch.stop_if_asked();
  }
  epoch.add_test_images(pictures);
  here.pipeline.train(true);
}

/// What each rank does.
void train_rank(const Settings& settings, const StreamPlan& plan, const TrainTest& data, Rank& rank) {
  std::optional<UncheckedVersions> unchecked;
  if (!settings.pipeline.version_check) {
    unchecked.emplace();
  }
  const int stage = plan.schedule.stage_of(rank.index);
  const auto delays = largest_delays(plan.schedule, make_ledger(plan.schedule, plan.versions));
  Run run(settings, rank.comm,
          {.layers = plan.layers,
           .stages = plan.stages_text(),
           .replica_of = plan.first_rank(stage),
           .loss_rank = plan.last_rank(),
           .splits_losses = plan.schedule.replicas_of(plan.stages() - 1) > 1});
  const auto stages = open_stages(settings, plan, data.train, rank);
  const auto layers = joined(stages);
  Place here{settings,
             plan,
             rank,
             delays[static_cast<std::size_t>(stage)],
             rank.comm.split(stage, rank.index),
             layers,
             open_optimizer(settings, *layers),
             open_pipeline(settings, plan, stages, rank.comm)};
  run.restore(*here.layers, *here.optimizer);
  run.predict_by([&] { return predict_traced(plan, here.pipeline.log()); });
  MicroBatchLoader training = micro_batch_loader(settings, plan, data.train, rank, LoaderFor::training);
  MicroBatchLoader testing = micro_batch_loader(settings, plan, data.test, rank, LoaderFor::testing);

  for (Epoch& epoch : run.epochs()) {
    here.pipeline.log().clear();
    epoch.start_training(training);
    run_epoch(here, training, data.train.size(), epoch);
    epoch.finish_training();
    require_equal_replicas(here.layers->named_parameters(), *here.replicas);
    for (auto [name, statistics] : here.layers->named_buffers()) {
      here.replicas->broadcast(statistics, 0);  // batch norm's are of the micro-batches that a replica met
    }
    epoch.set_prediction(predict_epoch(plan, here.pipeline.log()));
    evaluate(here, epoch, testing, data.test.size());
  }
}

void train(const Settings& settings) {
  const TrainTest data = open_data(settings);
  const StreamPlan plan = make_stream_plan(settings, data.train);
  if (settings.run.explain) {
    return explain_stream(settings, plan);
  }
  if (settings.pipeline.versions == "none" && settings.pipeline.version_check) {
    fmt::print(
        "--versions none writes over weights that backwards still need. The version check will stop the run; "
        "--no-version-check lets it go on, with gradients that are wrong\n");
  }
  if (settings.run.ledger) {
    print_ledger(plan);
  }
  const Settings chosen = with_stages_of(plan, settings);
  launch(plan.world, [&](Rank& rank) { train_rank(chosen, plan, data, rank); });
}

const Chapter kChapter{
    .program = "ch04_pipedream",
    .title = "Chapter 4: PipeDream, a pipeline that never drains, and versions of its weights.",
    .example = "ch04_pipedream --data data/generated --ranks 2 --versions stash --epochs 5 --out runs/pipedream",
    .flags = {"microbatches", "ranks",       "versions", "replicas", "ledger",    "version-check", "no-version-check",
              "lr-warmup",    "lr-discount", "split",    "balance",  "plan",      "save-plan",     "recompute",
              "receives",     "lowered",     "clock",    "link",     "transport", "timeout",       "explain"},
    .defaults = {.pipeline = {.versions = "stash"}, .world = {.ranks = 2}},
};

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) { return stagecoach::run_program(argc, argv, stagecoach::kChapter, stagecoach::train); }
