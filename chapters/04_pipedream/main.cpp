/// @file
/// Chapter 4: 1F1B, and PipeDream, which takes the flush out of it.
///
/// GPipe runs all forwards before the first backward. 1F1B runs a backward as soon as it can:
/// `forward_backward_by_hand` (--versions flush --schedule by-hand). Like GPipe it drains, or flushes, the pipeline
/// before each update. PipeDream, `train_from_table`, drains it after an epoch only: each stage updates its weights as
/// soon as it has a batch's gradient. When a micro-batch comes back, they may be newer than those that its forward
/// used, and a backward through other weights computes no gradient. So each stage keeps old versions. --versions says
/// which one a forward, and later its backward, uses:
///   stash     the newest of the stage (the default)
///   vertical  the newest that stage 0 had when the micro-batch entered
///   2bw       of batch b: the one before the update from batch b - 1, on all stages
///   flush     the only one: the table drains before each update
///   none      the newest, and the backward the newest then: autograd refuses that, unless --no-version-check is given
/// With --replicas a stage is on several ranks, which take micro-batches round-robin and average their gradients.

#include <algorithm>

#include "chapters/04_pipedream/stage_replica.h"
#include "chapters/04_pipedream/stream_prediction.h"
#include "chapters/common/open.h"
#include "chapters/common/pipeline_steps.h"
#include "chapters/common/program.h"
#include "parallel/data_parallel/average_gradients.h"
#include "parallel/pipeline/weight_versions.h"

namespace stagecoach {
namespace {

/// 1F1B by hand: the forwards and backwards of a batch on rank r of p, which holds stage r. They add to the gradients
/// of its parameters; train_rank updates them.
void forward_backward_by_hand(StageReplica& replica, const MicroBatches& batch, EpochSums& sums) {
  const int r = replica.rank.index;
  const int p = replica.rank.world;
  const int m = batch.count();
  // As in chapter 3: receives, runs the stage and sends on, without waiting. The last stage has the loss instead.
  StepByHand step(replica.pipeline.stage(r), replica.plan, batch, replica.rank.comm, sums);
  const int warm_up = std::min(p - r - 1, m);  // forwards, one for each later rank
  for (int i = 0; i < warm_up; ++i) {
    step.forward(i);
  }
  for (int i = warm_up; i < m; ++i) {  // one forward, one backward
    step.forward(i);
    step.backward(i - warm_up);
  }
  for (int i = m - warm_up; i < m; ++i) {  // the flush: no forward of the next batch fills the gaps
    step.backward(i);
  }
  step.finish();  // waits for the sends
}

/// PipeDream: the epoch's remaining batches in the order of one table of actions, which drains before each update with
/// --versions flush only.
void train_from_table(StageReplica& replica, Epoch& epoch) {
  ActionStream stream(replica, epoch);  // the table, and the micro-batches for its forwards
  const NamedTensors parameters = replica.layers->named_parameters();
  // The ledger lists which version of the weights each action uses, or makes, by the rule of --versions.
  WeightVersions weights(parameters, stream.schedule(), stream.ledger(), replica.rank.index);
  for (const auto& [i, action, batches] : stream.actions()) {  // after SIGINT: until the pipeline is empty
    weights.choose(i);  // action i's version; an update works on a copy if a backward still needs the old one
    if (action.operation == Operation::reduce_grad) {
      // The sum over the replicas, divided by the number of batches: each batch added the gradient of its mean loss.
      average_gradients(parameters, batches.count(), *replica.replicas);
    } else if (action.operation == Operation::update) {
      replica.optimizer->step();
      replica.optimizer->zero_grad();
    } else {
      replica.pipeline.perform(action);  // a forward or a backward, or a message; backwards start from 1 / N
    }
    weights.free_unneeded(i);  // versions that no later action uses
  }
}

/// Trains the stage of this rank.
void train_rank(const StreamPlan& plan, const TrainTest& data, Rank& rank) {
  Run run = make_run(with_stages_of(plan), rank.comm, role_of(plan, rank.index));  // prints, measures, saves
  StageReplica replica(plan, data, rank);  // this rank's stage, its optimizer, and loaders of batches
  run.set_up_checkpoints(data, *replica.layers, *replica.optimizer);  // --resume loads both; each epoch saves both
  run.predict_with(make_predictor(plan, replica.pipeline.log()));     // how long the epoch should have taken

  for (Epoch& epoch : run.epochs()) {
    if (is_by_hand(plan.settings.pipeline)) {  // --schedule by-hand, which needs --versions flush
      for (const MicroBatches& batch : epoch.training_batches(replica.train_loader)) {
        forward_backward_by_hand(replica, batch, epoch.train_sums());
        update(replica, epoch);  // the optimizer's step, then zero_grad
      }
    } else {
      train_from_table(replica, epoch);
    }
    sync_replicas(replica);    // throws unless their weights are equal; shares batch norm's statistics
    evaluate(replica, epoch);  // the forwards of such a table
  }
  const auto microbatches = static_cast<std::size_t>(plan.microbatches_per_batch);
  print_sample(plan.settings, replica.pipeline, plan.schedule_for(microbatches), rank.comm);  // --sample
}

void train(const Settings& settings) {
  const TrainTest data = open_data(settings);
  const StreamPlan plan(settings, data.train);  // chooses the stages, unless --split does
  if (settings.run.explain) {
    return explain_stream(plan);  // prints the beginning of the table, and does not train
  }
  introduce(plan);  // warns of --versions none; with --ledger prints the ledger
  launch_ranks(plan, [&](Rank& rank) { train_rank(plan, data, rank); });
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
