/// @file
/// Chapter 5: 1F1B and its interleaved form.
///
/// GPipe keeps the activations of all micro-batches, as no backward begins before the last forward. 1F1B (chapter 4)
/// runs a backward as soon as it can, and so keeps few. Interleaved, a rank holds several thin stages, its chunks,
/// instead of one thick one: the pipeline fills and drains faster, and ranks are idle for less time.
///
/// All three are tables of actions. An action is the forward or backward of a micro-batch on a stage, or a message. So
/// this program differs from chapter 3's in one place: the table. `interleaved_action` below derives the interleaved
/// one, action by action, and the library's is checked against it. For every other --schedule, 1F1B among them, nothing
/// is derived.

#include <algorithm>
#include <string>
#include <vector>

#include "chapters/common/bug_hooks.h"
#include "chapters/common/open.h"
#include "chapters/common/pipeline_steps.h"
#include "chapters/common/plan.h"
#include "chapters/common/prediction.h"
#include "chapters/common/program.h"
#include "chapters/common/run.h"
#include "core/base/error.h"
#include "parallel/schedule/schedule_kinds.h"

namespace stagecoach {
namespace {

/// The interleaved order: the action at `position`, from 0 to 2 m v - 1, in the list of rank `rank`. There are p ranks
/// with v chunks each, and m micro-batches. Chunk c of a rank is stage c p + rank. With v = 1 it is 1F1B.
///
/// A rank runs n micro-batches, a group, through one chunk before it turns to the next chunk. With n = p, the default,
/// it turns just when the group's first micro-batch comes round from the last rank; larger groups need fewer turns and
/// more memory. The last group may be smaller. Where v > 1, make_plan has checked that n is from p to m.
Action interleaved_action(const ScheduleSizes& sizes, int rank, int position) {
  const auto [p, m, v, n] = sizes;

  // Forwards to warm up, then alternately one forward and one backward, then the remaining backwards. The warm-up lasts
  // until the first gradient is back: a whole group through every chunk but the last, (v - 1) n forwards, and the way
  // to the last rank and back. (The way back is counted only so that messages are hidden: where they take no time, a
  // step is as long without it.) Plain 1F1B (v = 1) counts the way there only, and then waits: more forwards would cost
  // memory and gain no time.
  const int total = m * v;  // forwards of a rank, and as many backwards
  const int warm_up = std::min(v == 1 ? p - rank - 1 : (v - 1) * n + 2 * (p - rank - 1), total);
  const int steady = position - warm_up;
  const bool is_forward = position < warm_up || (position < 2 * total - warm_up && steady % 2 == 0);
  int k = position;  // the number of this forward, or of this backward
  if (position >= 2 * total - warm_up) {
    k = position - total;
  } else if (position >= warm_up) {
    k = is_forward ? warm_up + steady / 2 : steady / 2;
  }

  // A group of micro-batches goes through chunk 0, then through chunk 1, and so on; then the next group.
  const int group = k / (n * v);
  const int first = group * n;  // the group's first micro-batch
  const int size = std::min(n, m - first);
  const int in_group = k - first * v;
  const int microbatch = first + in_group % size;
  const int chunk = in_group / size;

  // Backwards take the chunks from the last to the first.
  return is_forward ? Action{Operation::forward, chunk * p + rank, microbatch}
                    : Action{Operation::backward, (v - 1 - chunk) * p + rank, microbatch};
}

/// Throws Error unless interleaved_action makes the table `library`, of computations alone.
void require_same_order(const ScheduleSizes& sizes, const Schedule& library) {
  for (std::size_t rank = 0; rank < library.ranks.size(); ++rank) {
    for (std::size_t position = 0; position < library.ranks[rank].size(); ++position) {
      const Action& expected = library.ranks[rank][position];
      const Action action = interleaved_action(sizes, static_cast<int>(rank), static_cast<int>(position));
      STAGECOACH_CHECK(action == expected,
                       "the interleaved order by hand: expected {} at position {} of rank {}, got {}",
                       to_string(expected), position, rank, to_string(action));
    }
  }
}

/// Trains on one rank, as in chapter 3; new is that a rank may hold several stages.
void train_rank(const Settings& settings, const Plan& plan, const TrainTest& data, Rank& rank) {
  Run run = make_run(settings, rank.comm, role_of(plan));  // prints, measures, saves; on SIGINT all stop after one step
  run.print_notes(plan.notes);  // such as the memory it costs if a table runs backwards out of order
  const auto stages = make_stages(settings.training, plan, data.train, rank);  // by number: this rank's chunks
  const auto layers = joined(stages);                                          // as one module, for the optimizer
  const auto optimizer = make_optimizer(settings.training, layers->named_parameters());
  run.set_up_checkpoints(data, *layers, *optimizer);  // --resume: loads both; after each epoch, saves both to --out
  Pipeline pipeline = make_pipeline(settings, plan, stages, rank.comm);  // the stages, and what runs tables
  // For metrics.jsonl and trace.json: how long the steps should have taken, given the measured times of all ranks.
  run.predict_with(make_predictor(plan, pipeline.log()));
  // Images on the rank of the first stage, labels on the rank of the last one, and the sizes of batches on all.
  MicroBatchLoader train_loader = make_micro_batch_loader(settings, plan, data.train, rank, LoaderFor::training);
  MicroBatchLoader test_loader = make_micro_batch_loader(settings, plan, data.test, rank, LoaderFor::testing);

  for (Epoch& epoch : run.epochs()) {
    for (const MicroBatches& batch : epoch.training_batches(train_loader)) {
      forward_backward(pipeline, plan, batch, epoch.train_sums());  // in the order of plan.schedule, the table
      pipeline.update(*optimizer);  // this rank's layers: the optimizer's step, then zero_grad
    }
    evaluate(pipeline, plan, epoch, test_loader);  // the forwards of the same table, without graphs
  }
}

void train(const Settings& settings) {
  const TrainTest data = open_data(settings);
  const Plan plan = make_plan(settings, data.train, settings.pipeline.schedule);
  if (settings.pipeline.schedule == "interleaved") {
    const int p = settings.world.ranks;
    const ScheduleSizes sizes{.ranks = p,
                              .microbatches = static_cast<int>(settings.training.microbatches),
                              .chunks = settings.pipeline.chunks,  // 2, if not given: see the defaults below
                              .group = settings.pipeline.group == 0 ? p : settings.pipeline.group};
    // The plan's table, which this program runs, lists sends and receives too.
    require_same_order(sizes, computations_of(plan.schedule));
  }
  if (settings.run.explain) {
    return explain(settings, plan);  // prints the table and its timeline, and does not train
  }
  // Runs train_rank once per rank, each on a thread of this process; under mpirun, for the one rank of this process.
  launch_ranks(plan.world, plan.inject, [&](Rank& rank) { train_rank(settings, plan, data, rank); });
}

/// Returns the names of all schedules. The first is the default: interleaved.
std::vector<std::string> schedules() {
  std::vector<std::string> names = schedule_names();
  const auto interleaved = std::find(names.begin(), names.end(), "interleaved");
  std::rotate(names.begin(), interleaved, interleaved + 1);
  return names;
}

const Chapter kChapter{
    .number = 5,
    .program = "ch05_interleaved",
    .title = "Chapter 5: 1F1B and its interleaved form, and every other schedule.",
    .example = "ch05_interleaved --data data/generated --ranks 2 --chunks 2 --microbatches 8 --epochs 5 --out runs/il",
    // 0 chunks become 2 when flags are read, or 1 for a schedule that has one stage per rank.
    .defaults = {.training = {.microbatches = 4}, .pipeline = {.chunks = 0}, .world = {.ranks = 2}},
    .schedules = schedules(),
};

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) { return stagecoach::run_program(argc, argv, stagecoach::kChapter, stagecoach::train); }
