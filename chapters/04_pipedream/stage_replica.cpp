#include "chapters/04_pipedream/stage_replica.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "core/autograd/grad_mode.h"
#include "core/base/error.h"
#include "core/ops.h"
#include "parallel/data_parallel/average_gradients.h"
#include "parallel/data_parallel/same_model.h"
#include "parallel/pipeline/delayed_rate.h"

namespace stagecoach {
namespace {

/// Takes micro-batches from batches that are loaded one after another. They must be taken in ascending order; those of
/// the last batch can be taken again.
class BatchCursor {
 public:
  /// `next` loads a batch, which has `microbatches`, when the first of them is taken.
  BatchCursor(std::function<std::optional<MicroBatches>()> next, int microbatches)
      : next_(std::move(next)), microbatches_(microbatches) {}

  Tensor input(std::int64_t microbatch) { return batch_of(microbatch).input(within_batch(microbatch)); }
  const Tensor& target(std::int64_t microbatch) { return batch_of(microbatch).target(within_batch(microbatch)); }
  /// Returns the data for a run of a pipeline, with micro-batches of these sizes from `first` on.
  StepData data(std::vector<std::int64_t> sizes, std::int64_t first = 0) {
    return {.input = [this, first](int i) { return input(first + i); },
            .labels = [this, first](int i) { return target(first + i); },
            .samples = std::move(sizes)};
  }

 private:
  int within_batch(std::int64_t microbatch) const { return static_cast<int>(microbatch % microbatches_); }
  /// Skips the batches before that of the micro-batch: other replicas take theirs.
  const MicroBatches& batch_of(std::int64_t microbatch) {
    const std::int64_t batch = microbatch / microbatches_;
    STAGECOACH_CHECK(batch + 1 >= loaded_, "micro-batches of batch {} are gone: batch {} has been loaded", batch,
                     loaded_ - 1);
    for (; loaded_ <= batch; ++loaded_) {
      auto next = next_();
      STAGECOACH_CHECK(next.has_value(), "the epoch is too short: it has {} batches", loaded_);
      batch_ = std::move(*next);
    }
    return batch_;
  }

  std::function<std::optional<MicroBatches>()> next_;
  int microbatches_;
  std::int64_t loaded_ = 0;
  MicroBatches batch_;  // the last one
};

/// Sets the learning rate for the update after batch `batch` of the epoch.
void set_learning_rate(StageReplica& replica, const Epoch& epoch, std::int64_t batch) {
  const TrainingSettings& training = replica.plan.settings.training;
  const std::int64_t batches_before = (epoch.number() - 1) * replica.plan.batches() + batch;
  replica.optimizer->set_learning_rate(training.lr * epoch.rate_factor(batch) /
                                       delay_divisor(training.lr_discount, replica.delay, batches_before));
}

}  // namespace

StageReplica::StageReplica(const StreamPlan& plan_, const TrainTest& data, Rank& rank_)
    : PipelineWorker(plan_, data, rank_),
      plan(plan_),
      rank(rank_),
      stage(plan.schedule.stage_of(rank.index)),
      delay(largest_delays(plan.schedule, make_ledger(plan.schedule, plan.versions))[static_cast<std::size_t>(stage)]),
      replicas(rank.comm.split(stage, rank.index)),
      unchecked(plan.settings.pipeline.version_check ? nullptr : std::make_unique<UncheckedVersions>()) {}

ActionStream::ActionStream(StageReplica& replica, Epoch& epoch)
    : replica_(replica), epoch_(epoch), images_(replica.train_loader.image_count()) {
  const StreamPlan& plan = replica.plan;
  MicroBatchLoader& loader = replica.train_loader;
  epoch.start_training(loader);
  batches_done_ = epoch.steps_done();
  batches_ = static_cast<int>(loader.batch_count() - batches_done_);
  const std::vector<std::int64_t> sizes = plan.microbatch_sizes(images_, batches_done_);
  schedule_ = plan.schedule_for(sizes.size());
  ledger_ = make_ledger(schedule_, plan.versions);
  ahead_ = batches_ahead(schedule_);
  const auto cursor =
      std::make_shared<BatchCursor>([&] { return epoch.next_batch(loader); }, plan.microbatches_per_batch);
  StepData data = cursor->data(sizes);
  if (replica.plan.settings.training.dropout > 0) {
    data.position = {(epoch.number() - 1) * loader.batch_count() + batches_done_, 0};
  }
  replica.pipeline.begin(schedule_, std::move(data),
                         {.see_logits = [&epoch, cursor](int i, const Tensor& loss_sum, const Tensor& logits) {
                           epoch.train_sums().add(loss_sum, logits, cursor->target(i));
                         }});
}

const ActionStream::Entry* ActionStream::next() {
  end_action();
  const auto& actions = schedule_.ranks[static_cast<std::size_t>(replica_.rank.index)];
  while (next_index_ < actions.size()) {
    const std::size_t index = next_index_++;
    const Action& action = actions[index];
    BatchRange batches = batches_of(schedule_, action);
    while (batches.count() > 0 && !may_begin(batches.end - 1)) {
      --batches.end;
    }
    if (batches.count() == 0) {
      continue;
    }
    entry_ = {index, action, batches};
    if (action.operation == Operation::update || action.operation == Operation::reduce_grad) {
      timed_.emplace(replica_.pipeline.log(), action);
    }
    if (action.operation == Operation::update) {
      set_learning_rate(replica_, epoch_, batches_done_ + batches.first);
    }
    return &entry_;
  }
  replica_.pipeline.finish();
  if (batches_ > 0) {  // otherwise the run was resumed from a stop after the epoch's last batch
    static_cast<void>(may_begin(batches_ - 1));  // receives rank 0's last decision, if no action has
    epoch_.stop_if_refused();
  }
  epoch_.finish_training();
  return nullptr;
}

void ActionStream::end_action() {
  timed_.reset();
  if (entry_.action.operation == Operation::update) {
    const std::int64_t batch_size = replica_.plan.batch_size;
    for (int batch = entry_.batches.first; batch < entry_.batches.end; ++batch) {
      epoch_.add_step(std::min(batch_size, images_ - (batches_done_ + batch) * batch_size));
    }
  }
}

/// Rank 0 decides ahead of time, so that this function rarely waits for it.
bool ActionStream::may_begin(int batch) {
  return epoch_.may_begin(batches_done_ + batch, batches_done_ + std::min(batch + ahead_, batches_ - 1));
}

void update(StageReplica& replica, const Epoch& epoch) {
  const std::int64_t batch = epoch.steps_done();
  set_learning_rate(replica, epoch, batch);
  replica.pipeline.update(*replica.optimizer, {Operation::update, replica.stage, static_cast<int>(batch)});
}

void sync_replicas(StageReplica& replica) {
  require_equal_replicas(replica.layers->named_parameters(), *replica.replicas);
  broadcast_tensors(replica.layers->named_buffers(), *replica.replicas);
}

void evaluate(StageReplica& replica, Epoch& epoch) {
  const StreamPlan& plan = replica.plan;
  MicroBatchLoader& loader = replica.test_loader;
  const NoGrad no_grad;
  replica.pipeline.train(false);
  epoch.start_test();
  loader.start_epoch(1);
  BatchCursor cursor([&] { return loader.next(); }, plan.microbatches_per_batch);
  const std::int64_t at_once = std::int64_t{2} * replica.rank.world;  // batches
  for (std::int64_t batch = 0; batch < loader.batch_count(); batch += at_once) {
    const auto sizes =
        plan.microbatch_sizes(std::min(loader.image_count(), (batch + at_once) * plan.batch_size), batch);
    const std::int64_t first = batch * plan.microbatches_per_batch;
    const auto see_logits = [&](int i, const Tensor&, const Tensor& logits) {
      count_correct(logits, cursor.target(first + i), epoch.test_sums().correct);
    };
    replica.pipeline.run(forwards_of(plan.schedule_for(sizes.size())), cursor.data(sizes, first),
                         {.see_logits = see_logits});
    epoch.stop_if_asked();
  }
  epoch.add_test_images(loader.image_count());
  replica.pipeline.train(true);
}

}  // namespace stagecoach
