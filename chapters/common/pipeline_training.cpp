#include "chapters/common/pipeline_training.h"

#include "chapters/common/open.h"
#include "chapters/common/pipeline_steps.h"
#include "chapters/common/prediction.h"
#include "chapters/common/run_log.h"

namespace stagecoach {

void train_pipeline(const Settings& settings, const Plan& plan, const TrainTest& data, Rank& rank,
                    const RunStep& run_step) {
  RunLog log(settings, rank.comm, plan.layers, plan.last_rank());
  log.print_notes(plan.notes);
  const auto stages = open_stages(settings.training, plan, data.train, rank);
  const auto layers = joined(stages);
  const auto optimizer = open_optimizer(settings.training, layers->named_parameters());
  log.restore(*layers, *optimizer);
  Pipeline pipeline = open_pipeline(settings.pipeline, plan, stages, rank.comm);
  log.predict_by([&] { return predict_step(plan, pipeline.log().mean_costs()); });
  StepLoader training = step_loader(settings, plan, data.train, rank, LoaderFor::training);
  StepLoader testing = step_loader(settings, plan, data.test, rank, LoaderFor::testing);

  while (log.epochs_left()) {
    training.start_epoch(log.progress().epoch, log.progress().step);
    log.start_epoch(training.batches());
    pipeline.log().clear();
    while (const auto step = log.next(training)) {
      run_step(pipeline, *step, log.sums());
      {
        const ActionLog::Scope update(pipeline.log());
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

}  // namespace stagecoach
