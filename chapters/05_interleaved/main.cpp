/// @file
/// Chapter 5: 1F1B and its interleaved form.
///
/// GPipe keeps the activations of all micro-batches, as no backward begins before the last forward. 1F1B runs a
/// backward as soon as it can, and so keeps few. Interleaved, a rank holds several thin stages instead of one thick
/// one: the pipeline fills and drains faster, and ranks are idle for less time. Both are orders of the same actions. So
/// this program differs from chapter 3's table in one place: the schedule.

#include "chapters/common/open.h"
#include "chapters/common/pipeline_steps.h"
#include "chapters/common/plan.h"
#include "chapters/common/prediction.h"
#include "chapters/common/program.h"
#include "chapters/common/run_log.h"

namespace stagecoach {
namespace {

/// What each rank does.
void train_rank(const Settings& settings, const Plan& plan, const TrainTest& data, Rank& rank) {
  RunLog log(settings, rank.comm, plan.layers, plan.last_rank());
  const auto stages = open_stages(settings, plan, data.train, rank);  // stages r, r + p, r + 2p, … of rank r
  const auto layers = joined(stages);
  const auto optimizer = open_optimizer(settings, *layers);
  log.restore(*layers, *optimizer);
  Pipeline pipeline = open_pipeline(settings, plan, stages, rank.comm);
  StepLoader training = step_loader(settings, plan, data.train, rank, LoaderFor::training);
  StepLoader testing = step_loader(settings, plan, data.test, rank, LoaderFor::testing);

  while (log.epochs_left()) {
    training.start_epoch(log.progress().epoch, log.progress().step);
    log.start_epoch(training.batches());
    pipeline.log().clear();
    while (const auto step = log.next(training)) {
      run_step(pipeline, plan, *step, log.sums());
      {
        const ActionLog::Update update(pipeline.log());
        optimizer->step();
        optimizer->zero_grad();
      }
      log.add_step(step->pictures, *layers, *optimizer);
    }
    log.stop_clock();
    const Expected expected = expect(plan, pipeline.log().mean_costs(), training.batches());
    const double share = accuracy(pipeline, plan, testing, rank.comm, [&] { log.stop_if_asked(*layers, *optimizer); });
    log.finish_epoch(share, *layers, *optimizer, expected);
  }
  log.finish();
}

void train(const Settings& settings) {
  const TrainTest data = open_data(settings);
  const Plan plan = make_plan(settings, data.train, settings.schedule);
  if (settings.explain) {
    return explain(settings, plan);
  }
  launch(plan.world, [&](Rank& rank) { train_rank(settings, plan, data, rank); });
}

const Chapter kChapter{
    .program = "ch05_interleaved",
    .title = "Chapter 5: 1F1B and its interleaved form, and every other schedule.",
    .example = "ch05_interleaved --data data/generated --ranks 2 --chunks 2 --microbatches 8 --epochs 5 --out runs/il",
    .flags = {"microbatches", "ranks", "schedule", "chunks", "group", "split", "balance", "recompute", "clock", "link",
              "transport", "timeout", "explain"},
    .defaults = {.microbatches = 4, .ranks = 2, .chunks = 0},
    .schedules = {"interleaved", "1f1b", "foldx_aiao", "foldx_fifo", "zb-h1", "gpipe", "naive"},
};

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) { return stagecoach::run_program(argc, argv, stagecoach::kChapter, stagecoach::train); }
