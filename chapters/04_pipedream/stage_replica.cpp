#include "chapters/04_pipedream/stage_replica.h"

#include <algorithm>

#include "chapters/04_pipedream/microbatch_iterator.h"
#include "chapters/common/open.h"
#include "chapters/common/pipeline_steps.h"
#include "core/autograd/grad_mode.h"
#include "core/ops.h"
#include "parallel/data_parallel/average_gradients.h"
#include "parallel/data_parallel/same_model.h"
#include "parallel/pipeline/delayed_rate.h"
#include "parallel/schedule/ledger.h"

namespace stagecoach {

StageReplica make_stage_replica(const Settings& settings, const StreamPlan& plan, const Dataset& data, Rank& rank) {
  const int stage = plan.schedule.stage_of(rank.index);
  const auto delays = largest_delays(plan.schedule, make_ledger(plan.schedule, plan.versions));
  const auto stages = make_stages(settings.training, plan, data, rank);
  const auto layers = joined(stages);
  return {.settings = settings,
          .plan = plan,
          .rank = rank,
          .stage = stage,
          .delay = delays[static_cast<std::size_t>(stage)],
          .replicas = rank.comm.split(stage, rank.index),
          .layers = layers,
          .optimizer = make_optimizer(settings.training, layers->named_parameters()),
          .pipeline = make_pipeline(settings, plan, stages, rank.comm),
          .unchecked = settings.pipeline.version_check ? nullptr : std::make_unique<UncheckedVersions>()};
}

void update(StageReplica& replica, const Epoch& epoch, std::int64_t batch) {
  const TrainingSettings& training = replica.settings.training;
  const std::int64_t batches_before = (epoch.number() - 1) * replica.plan.batches() + batch;
  replica.optimizer->set_learning_rate(
      delayed_rate({training.lr, training.lr_warmup, training.lr_discount}, replica.delay, batches_before));
  replica.optimizer->step();
  replica.optimizer->zero_grad();
}

void sync_replicas(StageReplica& replica) {
  require_equal_replicas(replica.layers->named_parameters(), *replica.replicas);
  broadcast_tensors(replica.layers->named_buffers(), *replica.replicas);
}

void evaluate(StageReplica& replica, Epoch& epoch, MicroBatchLoader& loader, std::int64_t images) {
  const StreamPlan& plan = replica.plan;
  const NoGrad no_grad;
  replica.pipeline.train(false);
  epoch.start_test();
  loader.start_epoch(1);
  MicrobatchIterator microbatches([&] { return loader.next(); }, plan.microbatches_per_batch);
  const auto see_logits = [&](int i, const Tensor&, const Tensor& logits) {
    count_correct(logits, microbatches.labels(i), epoch.test_sums().correct);
  };
  const std::int64_t at_once = std::int64_t{2} * replica.rank.world;  // batches
  for (std::int64_t first = 0; first < loader.batch_count(); first += at_once) {
    const std::vector<std::int64_t> sizes =
        plan.microbatch_sizes(std::min(images, (first + at_once) * plan.batch_size), first);
    replica.pipeline.run(forwards_of(plan.schedule_for(sizes.size())), microbatches.data(sizes, first),
                         {.see_logits = see_logits});
    epoch.stop_if_asked();
  }
  epoch.add_test_images(images);
  replica.pipeline.train(true);
}

}  // namespace stagecoach
