/// @file
/// Chapter 3: GPipe. A batch is split into micro-batches, which follow each other through the ranks.
///
/// While the second rank works on the first micro-batch, the first rank works on the second one. Each rank runs the
/// forwards of all micro-batches, then their backwards, and then updates its layers. Ranks still wait while the first
/// activations and the last gradients are on their way (the bubble): the more micro-batches, the smaller this share of
/// the step. In exchange each rank keeps the activations of all micro-batches until their backwards.
///
/// The program has this order twice: written out by hand, as sends and receives in two loops (--schedule by-hand), and
/// as a table of actions that an executor runs (forward_backward in chapters/common/pipeline_steps.h). Both give
/// bit-identical weights, and the later chapters run tables.

#include "chapters/common/bug_hooks.h"
#include "chapters/common/open.h"
#include "chapters/common/pipeline_steps.h"
#include "chapters/common/plan.h"
#include "chapters/common/prediction.h"
#include "chapters/common/program.h"
#include "chapters/common/run.h"
#include "core/ops.h"

namespace stagecoach {
namespace {

/// GPipe by hand: the forwards and backwards of a batch on this rank. They add to the gradients of its parameters; the
/// update is train_rank's. Of `pipeline` it uses the rank's stage and the log, not the table of actions.
void forward_backward_by_hand(Pipeline& pipeline, const Plan& plan, const MicroBatches& batch, Communicator& comm,
                              EpochSums& sums) {
  const int me = comm.rank();  // the number of this rank, and of its stage
  const bool first = me == 0;
  const bool last = me + 1 == comm.size();
  const bool x_needs_grad = !first;  // images need no gradient
  const int m = static_cast<int>(batch.sizes.size());
  Stage& stage = pipeline.stage(me);
  std::vector<PendingSend> sends;

  // What enters a stage for micro-batch i: [n, …]. A gradient has the shape of what it is the gradient of.
  const auto shape = [&](int entered, int i) {
    return plan.shapes[static_cast<std::size_t>(entered)].with(0, batch.sizes[static_cast<std::size_t>(i)]);
  };
  // Each message has a tag of its own, so that none is mistaken for another.
  const auto forward_tag = [](int i) { return 2 * i; };
  const auto backward_tag = [](int i) { return 2 * i + 1; };

  // All forwards. A send does not wait: the next micro-batch starts while the output of this one is still being sent.
  // The stage keeps each micro-batch's graph under its number, for the backward. normalize() makes floats from -1 to 1
  // out of the bytes of images.
  for (int i = 0; i < m; ++i) {
    const ActionLog::Scope timed(pipeline.log(), {Operation::forward, me, i});  // less what comm waited
    const auto number = static_cast<std::size_t>(i);
    const Tensor x =
        first ? normalize(batch.images[number]) : comm.receive(shape(me, i), DType::float32, me - 1, forward_tag(i));
    if (last) {
      Tensor logits;
      const Tensor loss_sum = stage.forward_with_loss(i, x, batch.labels[number], x_needs_grad, &logits);
      sums.add(loss_sum, logits, batch.labels[number]);
    } else {
      const Tensor y = stage.forward(i, x, x_needs_grad);
      pipeline.log().note_message(me, y.bytes(), me + 1);  // for the predictions; the gradient is as large
      sends.push_back(comm.send_async(y, me + 1, forward_tag(i)));
    }
  }

  // All backwards, in the order of the forwards, where the paper's figure has the reverse: floating-point sums depend
  // on the order, and this is the order of one device. As in chapter 1, losses are summed, and each image weighs 1 / N,
  // where N is the size of the whole batch.
  const Tensor share = Tensor::full({}, 1.0 / static_cast<double>(batch.global_size), DType::float32, comm.device());
  for (int i = 0; i < m; ++i) {
    const ActionLog::Scope timed(pipeline.log(), {Operation::backward, me, i});
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

/// Trains on one rank, as in chapter 2.
void train_rank(const Settings& settings, const Plan& plan, const TrainTest& data, Rank& rank) {
  Run run(settings, rank.comm, role_of(plan));  // prints, measures, saves; on SIGINT all ranks stop after the same step
  run.print_notes(plan.notes);  // on a table from a file: what its order means for memory, or what is ignored in it
  const auto stages = make_stages(settings.training, plan, data.train, rank);  // by number: only those of this rank
  const auto layers = joined(stages);                                          // as one module, for the optimizer
  const auto optimizer = make_optimizer(settings.training, layers->named_parameters());
  run.set_up_checkpoints(data, *layers, *optimizer);  // --resume: loads both; after each epoch, saves both to --out
  Pipeline pipeline = make_pipeline(settings, plan, stages, rank.comm);  // the stages, and what runs tables
  // For metrics.jsonl and trace.json: how long the steps should have taken, given the measured times of all ranks.
  run.predict_with(make_predictor(plan, pipeline.log()));
  MicroBatchLoader train_loader = make_micro_batch_loader(settings, plan, data.train, rank, LoaderFor::training);
  MicroBatchLoader test_loader = make_micro_batch_loader(settings, plan, data.test, rank, LoaderFor::testing);

  for (Epoch& epoch : run.epochs()) {
    for (const MicroBatches& batch : epoch.training_batches(train_loader)) {
      if (is_by_hand(settings.pipeline)) {  // --schedule by-hand
        forward_backward_by_hand(pipeline, plan, batch, rank.comm, epoch.train_sums());
      } else {
        forward_backward(pipeline, plan, batch, epoch.train_sums());  // from the plan's table: --explain prints it
      }
      update(pipeline.log(), *optimizer);  // this rank's layers: the optimizer's step, then zero_grad
    }
    evaluate(pipeline, plan, epoch, test_loader);  // the forwards of the same table, without graphs
  }
}

void train(const Settings& settings) {
  const TrainTest data = open_data(settings);
  // The order by hand is that of the table "gpipe" with --receives at-use, which then serves --explain, the predictions
  // and evaluate().
  const Plan plan =
      make_plan(settings, data.train, is_by_hand(settings.pipeline) ? "gpipe" : settings.pipeline.schedule);
  if (settings.run.explain) {
    return explain(settings, plan);  // prints the table and its timeline, and does not train
  }
  // Runs train_rank once per rank, each on a thread of this process; under mpirun, for the one rank of this process.
  launch_ranks(plan.world, plan.inject, [&](Rank& rank) { train_rank(settings, plan, data, rank); });
}

const Chapter kChapter{
    .number = 3,
    .program = "ch03_gpipe",
    .title = "Chapter 3: GPipe, micro-batches that follow each other through the ranks.",
    .example = "ch03_gpipe --data data/generated --ranks 2 --microbatches 8 --epochs 5 --out runs/gpipe",
    .defaults = {.training = {.microbatches = 4}, .world = {.ranks = 2}},
    .schedules = {"gpipe", "by-hand"},  // the values of --schedule besides a file; the first is the default
};

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) { return stagecoach::run_program(argc, argv, stagecoach::kChapter, stagecoach::train); }
