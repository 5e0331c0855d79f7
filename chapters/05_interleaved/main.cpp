/// @file
/// Chapter 5: 1F1B and its interleaved form.
///
/// GPipe keeps the activations of all micro-batches, as no backward begins before the last forward. 1F1B runs a
/// backward as soon as it can, and so keeps few. Interleaved, a rank holds several thin stages instead of one thick
/// one: the pipeline fills and drains faster, and ranks are idle for less time. Both are orders of the same actions. So
/// this program differs from chapter 3's table in one place: the schedule.

#include <algorithm>
#include <string>
#include <vector>

#include "chapters/common/open.h"
#include "chapters/common/pipeline_steps.h"
#include "chapters/common/pipeline_training.h"
#include "chapters/common/plan.h"
#include "chapters/common/prediction.h"
#include "chapters/common/program.h"
#include "parallel/schedule/schedule_kinds.h"

namespace stagecoach {
namespace {

void train(const Settings& settings) {
  const TrainTest data = open_data(settings);
  const Plan plan = make_plan(settings, data.train, settings.pipeline.schedule);
  if (settings.run.explain) {
    return explain(settings, plan);
  }
  launch(plan.world, [&](Rank& rank) {
    train_pipeline(settings, plan, data, rank, [&](Pipeline& pipeline, const MicroBatches& batch, EpochSums& sums) {
      run_step(pipeline, plan, batch, sums);  // as the table says
    });
  });
}

/// Every schedule there is; interleaved is the default.
std::vector<std::string> schedules() {
  std::vector<std::string> names = schedule_names();
  const auto standard = std::find(names.begin(), names.end(), "interleaved");
  std::rotate(names.begin(), standard, standard + 1);
  return names;
}

const Chapter kChapter{
    .number = 5,
    .program = "ch05_interleaved",
    .title = "Chapter 5: 1F1B and its interleaved form, and every other schedule.",
    .example = "ch05_interleaved --data data/generated --ranks 2 --chunks 2 --microbatches 8 --epochs 5 --out runs/il",
    .defaults = {.training = {.microbatches = 4}, .pipeline = {.chunks = 0}, .world = {.ranks = 2}},
    .schedules = schedules(),
};

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) { return stagecoach::run_program(argc, argv, stagecoach::kChapter, stagecoach::train); }
