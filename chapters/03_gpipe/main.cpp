/// @file
/// Chapter 3: GPipe. A batch is cut into micro-batches, which follow each other through the ranks.
///
/// While the second rank works on the first micro-batch, the first rank works on the second. First all micro-batches go
/// forward, then all go backward; then each rank updates its layers. The program has this order twice: written out by
/// hand, as sends and receives in two loops, and as a table of actions that one executor runs. Both train the same
/// bytes, and from here on the table is the way.

#include "chapters/common/open.h"
#include "chapters/common/pipeline_steps.h"
#include "chapters/common/pipeline_training.h"
#include "chapters/common/plan.h"
#include "chapters/common/prediction.h"
#include "chapters/common/program.h"
#include "core/ops.h"

namespace stagecoach {
namespace {

/// The order by hand: what rank `comm.rank()` does with a batch in its micro-batches.
void run_step_by_hand(Pipeline& pipeline, const Plan& plan, const Step& step, Communicator& comm, EpochSums& sums) {
  const int me = comm.rank();
  const bool first = me == 0;
  const bool last = me + 1 == comm.size();
  const int m = static_cast<int>(step.sizes.size());
  Stage& stage = pipeline.stage(me);
  std::vector<PendingSend> sends;

  // What enters stage `number` with micro-batch i: [n, …]. A gradient has the shape of what it is the gradient of.
  const auto shape = [&](int number, int i) {
    return plan.shapes[static_cast<std::size_t>(number)].with(0, step.sizes[static_cast<std::size_t>(i)]);
  };
  const auto forward_tag = [](int i) { return 2 * i; };
  const auto backward_tag = [](int i) { return 2 * i + 1; };

  // All forwards. A send does not wait: the next micro-batch is begun while this one is on its way.
  for (int i = 0; i < m; ++i) {
    const ActionLog::Scope scope(pipeline.log(), {Operation::forward, me, i});
    const auto number = static_cast<std::size_t>(i);
    const Tensor x =
        first ? normalize(step.images[number]) : comm.receive(shape(me, i), DType::float32, me - 1, forward_tag(i));
    if (last) {
      Tensor scores;
      accumulate(stage.forward_with_loss(i, x, step.labels[number], !first, &scores), sums.loss);
      count_correct(scores, step.labels[number], sums.correct);
    } else {
      const Tensor y = stage.forward(i, x, !first);
      pipeline.log().note_message(me, y.bytes());
      sends.push_back(comm.send_async(y, me + 1, forward_tag(i)));
    }
  }

  // All backwards, in the same order, so that gradients add up as on one device. Each picture has its share of the
  // whole batch's mean, not of its micro-batch's.
  const Tensor share = Tensor::full({}, 1.0 / static_cast<double>(step.pictures), DType::float32, comm.device());
  for (int i = 0; i < m; ++i) {
    const ActionLog::Scope scope(pipeline.log(), {Operation::backward, me, i});
    const Tensor grad = last ? share : comm.receive(shape(me + 1, i), DType::float32, me + 1, backward_tag(i));
    const Tensor grad_x = stage.backward(i, grad);
    if (!first) {
      sends.push_back(comm.send_async(grad_x, me - 1, backward_tag(i)));
    }
  }
  for (const PendingSend& send : sends) {
    send.wait();
  }
}

void train(const Settings& settings) {
  const TrainTest data = open_data(settings);
  const Plan plan =
      make_plan(settings, data.train, settings.pipeline.schedule == "by-hand" ? "gpipe" : settings.pipeline.schedule);
  if (settings.run.explain) {
    return explain(settings, plan);
  }
  launch(plan.world, [&](Rank& rank) {
    train_pipeline(settings, plan, data, rank, [&](Pipeline& pipeline, const Step& step, EpochSums& sums) {
      if (settings.pipeline.schedule == "by-hand") {
        run_step_by_hand(pipeline, plan, step, rank.comm, sums);
      } else {
        run_step(pipeline, plan, step, sums);  // the same from the table that --explain prints
      }
    });
  });
}

const Chapter kChapter{
    .number = 3,
    .program = "ch03_gpipe",
    .title = "Chapter 3: GPipe, micro-batches that follow each other through the ranks.",
    .example = "ch03_gpipe --data data/generated --ranks 2 --microbatches 8 --epochs 5 --out runs/gpipe",
    .defaults = {.training = {.microbatches = 4}, .world = {.ranks = 2}},
    .schedules = {"gpipe", "by-hand"},
};

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) { return stagecoach::run_program(argc, argv, stagecoach::kChapter, stagecoach::train); }
