/// @file
/// Chapter 5: interleaved 1F1B.
///
/// In 1F1B (chapter 4) a rank holds one thick stage. Interleaved, it holds several thin ones, its chunks: the pipeline
/// fills and drains faster, and ranks are idle for less time. The price is more messages and more activations.
///
/// A schedule is a table of actions. An action is the forward or backward of a micro-batch on a stage, or a message. So
/// this program differs from chapter 3's in one place: the table. `interleaved_actions` below derives the interleaved
/// one, and the library's is checked against it. For every other --schedule, nothing is derived.

#include <algorithm>
#include <vector>

#include "chapters/common/pipeline_steps.h"
#include "chapters/common/plan.h"
#include "chapters/common/prediction.h"
#include "chapters/common/program.h"
#include "chapters/common/run.h"
#include "core/base/error.h"
#include "parallel/schedule/text.h"

namespace stagecoach {
namespace {

/// The interleaved order: the actions of a rank. There are p ranks with v chunks each, and m micro-batches. Chunk c of
/// a rank is stage c p + rank. With v = 1 it is 1F1B.
///
/// A rank runs a group of micro-batches through one chunk before it turns to the next chunk. With groups of p, the
/// default, it turns just when the group's first micro-batch comes round from the last rank; larger groups need fewer
/// turns and more memory. The last group may be smaller. Where v > 1, the plan has checked that `group` is from p to m.
std::vector<Action> interleaved_actions(int p, int m, int v, int group, int rank) {
  // The k-th forward of the rank, or its k-th backward. A group of micro-batches goes through chunk 0, then through
  // chunk 1, and so on; then the next group. Backwards take the chunks from the last to the first.
  const auto action = [&](Operation operation, int k) {
    const int first = k / (group * v) * group;  // the group's first micro-batch
    const int size = std::min(group, m - first);
    const int in_group = k - first * v;
    const int chunk = operation == Operation::forward ? in_group / size : v - 1 - in_group / size;
    return Action{operation, chunk * p + rank, first + in_group % size};
  };

  // The warm-up lasts until the first gradient is back: a whole group through every chunk but the last, (v - 1) group
  // forwards, and the way to the last rank and back. (The way back is counted only so that messages are hidden: where
  // they take no time, a step is as long without it.) Plain 1F1B (v = 1) counts the way there only, and then waits:
  // more forwards would cost memory and gain no time.
  const int total = m * v;  // forwards of a rank, and as many backwards
  const int warm_up = std::min(v == 1 ? p - rank - 1 : (v - 1) * group + 2 * (p - rank - 1), total);
  std::vector<Action> actions;
  for (int k = 0; k < warm_up; ++k) {
    actions.push_back(action(Operation::forward, k));
  }
  for (int k = warm_up; k < total; ++k) {  // one forward, one backward
    actions.push_back(action(Operation::forward, k));
    actions.push_back(action(Operation::backward, k - warm_up));
  }
  for (int k = total - warm_up; k < total; ++k) {  // the flush
    actions.push_back(action(Operation::backward, k));
  }
  return actions;
}

/// Throws Error unless interleaved_actions makes the computations of `table`. A `group` of 0 is the default.
void require_same_order(const Schedule& table, int group) {
  const int p = table.rank_count();
  const Schedule computations = computations_of(table);  // it lists sends and receives, too
  Schedule by_hand = computations;
  for (int rank = 0; rank < p; ++rank) {
    by_hand.ranks[static_cast<std::size_t>(rank)] =
        interleaved_actions(p, table.microbatches, table.stage_count() / p, group == 0 ? p : group, rank);
  }
  STAGECOACH_CHECK(by_hand.ranks == computations.ranks, "the interleaved order by hand: expected the table\n{}got\n{}",
                   to_text(computations), to_text(by_hand));
}

/// Trains on one rank, as in chapter 3; new is that a rank may hold several stages.
void train_rank(const Plan& plan, const TrainTest& data, Rank& rank) {
  Run run = make_run(plan.settings, rank.comm, role_of(plan));  // prints, measures, saves; SIGINT stops all ranks
  run.print_notes(plan.notes);              // such as the memory it costs if a table runs backwards out of order
  PipelineWorker worker(plan, data, rank);  // this rank's chunks, their optimizer, and loaders of batches
  run.set_up_checkpoints(data, *worker.layers, *worker.optimizer);  // --resume loads both; each epoch saves both
  run.predict_with(make_predictor(plan, worker.pipeline.log()));    // how long the steps should have taken

  for (Epoch& epoch : run.epochs()) {
    for (const MicroBatches& batch : epoch.training_batches(worker.train_loader)) {
      forward_backward(worker.pipeline, plan, batch, epoch.train_sums());  // in the order of plan.schedule, the table
      worker.pipeline.update(*worker.optimizer);  // this rank's layers: the optimizer's step, then zero_grad
    }
    evaluate(worker.pipeline, plan, epoch, worker.test_loader);  // the forwards of the same table, without graphs
  }
  print_sample(plan.settings, worker.pipeline, plan.schedule, rank.comm);  // --sample: what a model of text writes
}

void train(const Settings& settings) {
  const TrainTest data = open_data(settings);
  const Plan plan(settings, data.train);
  if (settings.pipeline.schedule == "interleaved") {
    require_same_order(plan.schedule, settings.pipeline.group);
  }
  if (settings.run.explain) {
    return explain(plan);  // prints the table and its timeline, and does not train
  }
  // Runs train_rank once per rank, each on a thread of this process; under mpirun, for the one rank of this process.
  launch_ranks(plan, [&](Rank& rank) { train_rank(plan, data, rank); });
}

const Chapter kChapter{
    .number = 5,
    .program = "ch05_interleaved",
    .title = "Chapter 5: interleaved 1F1B, and every other schedule.",
    .example = "ch05_interleaved --data data/generated --ranks 2 --chunks 2 --microbatches 8 --epochs 5 --out runs/il",
    // 0 chunks become 2 when flags are read, or 1 for a schedule that has one stage per rank.
    .defaults = {.training = {.microbatches = 4}, .pipeline = {.chunks = 0}, .world = {.ranks = 2}},
    .schedules = schedules_with_default("interleaved"),
};

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) { return stagecoach::run_program(argc, argv, stagecoach::kChapter, stagecoach::train); }
