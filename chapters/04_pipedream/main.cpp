/// @file
/// Chapter 4: 1F1B, and PipeDream, which takes the flush out of it.
///
/// GPipe runs all forwards before the first backward. 1F1B runs a backward as soon as it can, and then alternates
/// forwards and backwards: `forward_backward_by_hand` (--versions flush --schedule by-hand). Like GPipe it drains, or
/// flushes, the pipeline before each update. PipeDream, in `train_from_table`, drains it at the end of an epoch only:
/// each stage updates its weights as soon as it has a batch's gradient. By the time a micro-batch comes back, a stage
/// may have newer weights than those that its forward used, and a backward through other weights does not compute a
/// gradient. So each stage keeps old versions. --versions says which one a forward, and later its backward, uses:
///   stash     the newest of the stage (the default)
///   vertical  the newest that stage 0 had when the micro-batch entered
///   2bw       of batch b: the one before the update from batch b - 1, on all stages
///   flush     the only one: the table drains before each update
///   none      the newest, and the backward the newest then: autograd refuses that, unless --no-version-check is given
/// With --replicas a stage is on several ranks, which take micro-batches round-robin and average their gradients.

#include <algorithm>

#include "chapters/04_pipedream/drain_control.h"
#include "chapters/04_pipedream/microbatch_iterator.h"
#include "chapters/04_pipedream/stage_replica.h"
#include "chapters/04_pipedream/stream_plan.h"
#include "chapters/04_pipedream/stream_prediction.h"
#include "chapters/common/bug_hooks.h"
#include "chapters/common/open.h"
#include "chapters/common/program.h"
#include "chapters/common/run.h"
#include "parallel/data_parallel/average_gradients.h"
#include "parallel/pipeline/action_log.h"
#include "parallel/pipeline/stage_messages.h"
#include "parallel/pipeline/weight_versions.h"
#include "parallel/schedule/ledger.h"

namespace stagecoach {
namespace {

/// 1F1B by hand: the forwards and backwards of a batch on rank r of p, which holds stage r. They add to the gradients
/// of its parameters; train_rank updates them.
void forward_backward_by_hand(StageReplica& replica, const MicroBatches& batch, EpochSums& sums) {
  Communicator& comm = replica.rank.comm;
  const int r = comm.rank();
  const int p = comm.size();
  const int m = batch.count();
  Stage& stage = replica.pipeline.stage(r);
  StageMessages messages(comm, replica.plan.shapes, batch.sizes);  // to and from the ranks before and after this one
  const bool x_needs_grad = !messages.is_first();                  // images need no gradient

  const auto forward = [&](int i) {
    const Tensor x = messages.is_first() ? batch.input(i)                // [n, 3, H, W]
                                         : messages.receive_forward(i);  // [n, …]
    if (messages.is_last()) {
      Tensor logits;
      const Tensor loss_sum = stage.forward_with_loss(i, x, batch.target(i), x_needs_grad, &logits);  // []
      sums.add(loss_sum, logits, batch.target(i));
    } else {
      messages.send_forward(i, stage.forward(i, x, x_needs_grad));  // does not wait
    }
  };
  // 1 / N: losses are summed per micro-batch, and the batch's loss is the mean of all N images.
  const Tensor share = Tensor::full({}, 1.0 / static_cast<double>(batch.global_size), DType::float32, comm.device());
  const auto backward = [&](int i) {
    const Tensor grad = messages.is_last() ? share : messages.receive_backward(i);
    const Tensor grad_x = stage.backward(i, grad);  // along the graph that the stage kept of forward(i)
    if (!messages.is_first()) {
      messages.send_backward(i, grad_x);
    }
  };

  const int warm_up = std::min(p - r - 1, m);  // forwards, one for each later rank
  for (int i = 0; i < warm_up; ++i) {
    forward(i);
  }
  for (int i = warm_up; i < m; ++i) {  // one forward, one backward
    forward(i);
    backward(i - warm_up);
  }
  for (int i = m - warm_up; i < m; ++i) {  // the flush: no forward of the next batch fills the gaps
    backward(i);
  }
  messages.wait_for_sends();
}

/// PipeDream: the epoch's remaining batches in the order of one table of actions, which drains before each update with
/// --versions flush only. `images` is their number in the whole epoch.
void train_from_table(StageReplica& replica, Epoch& epoch, MicroBatchLoader& loader, std::int64_t images) {
  const StreamPlan& plan = replica.plan;
  Pipeline& pipeline = replica.pipeline;
  epoch.start_training(loader);
  const std::vector<std::int64_t> sizes = plan.microbatch_sizes(images, epoch.steps_done());  // of those that remain
  if (sizes.empty()) {
    return epoch.finish_training();  // none left: this run resumed from a stop after the epoch's last batch
  }
  const Schedule schedule = plan.schedule_for(sizes.size());  // the table of so many micro-batches
  const auto& actions = schedule.ranks[static_cast<std::size_t>(replica.rank.index)];
  const NamedTensors parameters = replica.layers->named_parameters();
  // The ledger lists which version of the weights each action of the table uses, or makes, by the rule of --versions.
  WeightVersions weights(parameters, schedule, make_ledger(schedule, plan.versions), replica.rank.index);
  DrainControl drain(schedule, epoch);  // after SIGINT: which batches still run, the same on all ranks
  MicrobatchIterator microbatches([&] { return epoch.next_batch(loader); }, plan.microbatches_per_batch);
  const auto see_logits = [&](int microbatch, const Tensor& loss_sum, const Tensor& logits) {
    epoch.train_sums().add(loss_sum, logits, microbatches.labels(microbatch));
  };

  pipeline.begin(schedule, microbatches.data(sizes), {.see_logits = see_logits});  // its backwards start from 1 / N
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const Action& action = actions[i];
    // The batches that the action serves, numbered within the epoch: several for an update of a stage with replicas.
    const auto [first, end] = drain.admitted(action);
    if (first == end) {
      continue;  // after SIGINT: later batches are skipped, the earlier ones drain
    }
    if (action.operation == Operation::reduce_grad) {
      const ActionLog::Scope timed(pipeline.log(), action);
      // The sum over the replicas, divided by the number of batches: each batch added the gradient of its mean loss.
      average_gradients(parameters, static_cast<int>(end - first), *replica.replicas);
    } else if (action.operation == Operation::update) {
      {
        const ActionLog::Scope timed(pipeline.log(), action);
        weights.choose(i);              // the next version: a copy of the newest if that is needed later, else in place
        update(replica, epoch, first);  // optimizer step, zero_grad
      }
      for (std::int64_t batch = first; batch < end; ++batch) {
        epoch.add_step(std::min(plan.batch_size, images - batch * plan.batch_size));  // a batch counts as a step
      }
    } else {
      weights.choose(i);         // points the parameters at the version of the ledger, without a copy
      pipeline.perform(action);  // computes, sends, or posts a receive; logs the time
    }
    weights.free_unneeded(i);  // versions that no later action uses
  }
  pipeline.finish();  // waits until all sends have completed
  drain.finish();     // after SIGINT: saves and exits
  epoch.finish_training();
}

/// Trains the stage of this rank.
void train_rank(const Settings& settings, const StreamPlan& plan, const TrainTest& data, Rank& rank) {
  Run run(settings, rank.comm, role_of(plan, rank.index));  // prints, measures, saves; role_of says which layers
  StageReplica replica = make_stage_replica(settings, plan, data.train, rank);
  run.set_up_checkpoints(data, *replica.layers, *replica.optimizer);  // --resume: loads both; epochs() saves both
  // For metrics.jsonl and trace.json: how long the epoch should have taken, given the measured times of all ranks.
  run.predict_with(make_predictor(plan, replica.pipeline.log()));
  MicroBatchLoader train_loader = make_micro_batch_loader(settings, plan, data.train, rank, LoaderFor::training);
  MicroBatchLoader test_loader = make_micro_batch_loader(settings, plan, data.test, rank, LoaderFor::testing);

  for (Epoch& epoch : run.epochs()) {
    if (is_by_hand(settings.pipeline)) {  // --schedule by-hand, which needs --versions flush
      for (const MicroBatches& batch : epoch.training_batches(train_loader)) {
        forward_backward_by_hand(replica, batch, epoch.train_sums());
        const auto batch_number = static_cast<int>(epoch.steps_done());
        const ActionLog::Scope timed(replica.pipeline.log(), {Operation::update, replica.stage, batch_number});
        update(replica, epoch, batch_number);  // optimizer step, zero_grad; the learning rate may depend on it
      }
    } else {
      train_from_table(replica, epoch, train_loader, data.train.size());
    }
    sync_replicas(replica);  // throws unless their weights are equal; shares batch norm's statistics
    evaluate(replica, epoch, test_loader, data.test.size());  // the forwards of such a table
  }
}

void train(const Settings& settings) {
  const TrainTest data = open_data(settings);
  const StreamPlan plan = make_stream_plan(settings, data.train);  // chooses the stages, unless --split does
  if (settings.run.explain) {
    return explain_stream(settings, plan);  // prints the beginning of the table, and does not train
  }
  introduce(settings, plan);  // warns of --versions none; with --ledger prints the version of each action
  const Settings chosen = with_stages_of(plan, settings);  // saved, as --resume must use the same stages
  // Runs train_rank once per rank, each on a thread of this process; under mpirun, for the one rank of this process.
  launch_ranks(plan.world, plan.inject, [&](Rank& rank) { train_rank(chosen, plan, data, rank); });
}

const Chapter kChapter{
    .number = 4,
    .program = "ch04_pipedream",
    .title = "Chapter 4: PipeDream, a pipeline that drains only after an epoch, and versions of its weights.",
    .example = "ch04_pipedream --data data/generated --ranks 2 --versions stash --epochs 5 --out runs/pipedream",
    .defaults = {.pipeline = {.versions = Versions::stash}, .world = {.ranks = 2}},
    .schedules = {"1f1b", "by-hand"},
};

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) { return stagecoach::run_program(argc, argv, stagecoach::kChapter, stagecoach::train); }
