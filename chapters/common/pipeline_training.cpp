#include "chapters/common/pipeline_training.h"

#include "chapters/common/open.h"
#include "chapters/common/pipeline_steps.h"
#include "chapters/common/prediction.h"
#include "chapters/common/run.h"

namespace stagecoach {

void train_pipeline(const Settings& settings, const Plan& plan, const TrainTest& data, Rank& rank,
                    const RunStep& run_step) {
  Run run(settings, rank.comm, {.layers = plan.layers, .stages = plan.stages_text(), .loss_rank = plan.last_rank()});
  run.print_notes(plan.notes);
  const auto stages = open_stages(settings, plan, data.train, rank);
  const auto layers = joined(stages);
  const auto optimizer = open_optimizer(settings, *layers);
  run.restore(*layers, *optimizer);
  Pipeline pipeline = open_pipeline(settings, plan, stages, rank.comm);
  run.predict_by([&] { return predict_step(plan, pipeline.log().mean_costs()); });
  MicroBatchLoader train_batches = micro_batch_loader(settings, plan, data.train, rank, LoaderFor::training);
  MicroBatchLoader test_batches = micro_batch_loader(settings, plan, data.test, rank, LoaderFor::testing);

  for (Epoch& epoch : run.epochs()) {
    pipeline.log().clear();
    for (const MicroBatches& batch : epoch.train(train_batches)) {
      run_step(pipeline, batch, epoch.train_sums());
      update(pipeline.log(), *optimizer);
    }
    epoch.set_prediction(predict(plan, pipeline.log().mean_costs(), train_batches.batches()));
    evaluate(pipeline, plan, epoch, test_batches);
  }
}

}  // namespace stagecoach
