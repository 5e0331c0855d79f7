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

#include "chapters/common/pipeline_steps.h"
#include "chapters/common/plan.h"
#include "chapters/common/prediction.h"
#include "chapters/common/program.h"
#include "chapters/common/run.h"
#include "parallel/pipeline/stage_messages.h"

namespace stagecoach {
namespace {

/// GPipe by hand: the forwards and backwards of a batch on this rank. They add to the gradients of its parameters; the
/// update is train_rank's.
void forward_backward_by_hand(Stage& stage, const Plan& plan, const MicroBatches& batch, Communicator& comm,
                              EpochSums& sums) {
  StageMessages messages(comm, plan.shapes, batch.sizes);  // to and from the ranks before and after this one
  const bool x_needs_grad = !messages.is_first();          // images need no gradient

  // All forwards. A send does not wait: the next micro-batch starts while the output of this one is still being sent.
  // The stage keeps each micro-batch's graph under its number, for the backward.
  for (int i = 0; i < batch.count(); ++i) {
    // Layers that draw random numbers (--dropout) draw them by step and sample.
    const BatchScope position(batch.position_of(i));
    const Tensor x = messages.is_first() ? batch.input(i)                // [n, 3, H, W]
                                         : messages.receive_forward(i);  // [n, …]
    if (messages.is_last()) {
      Tensor logits;
      const Tensor loss_sum = stage.forward_with_loss(i, x, batch.target(i), x_needs_grad, &logits);  // []
      sums.add(loss_sum, logits, batch.target(i));
    } else {
      messages.send_forward(i, stage.forward(i, x, x_needs_grad));
    }
  }

  // All backwards, in the order of the forwards, where the paper's figure has the reverse: floating-point sums depend
  // on the order, and this is the order of one device. As in chapter 1, losses are summed, and each image weighs 1 / N,
  // where N is the size of the whole batch.
  const double share = 1.0 / static_cast<double>(batch.global_size);
  for (int i = 0; i < batch.count(); ++i) {
    const Tensor grad = messages.is_last() ? Tensor::full({}, share, DType::float32, comm.device())  // []
                                           : messages.receive_backward(i);
    const Tensor grad_x = stage.backward(i, grad);
    if (!messages.is_first()) {
      messages.send_backward(i, grad_x);
    }
  }
  messages.wait_for_sends();
}

/// Trains on one rank, as in chapter 2.
void train_rank(const Plan& plan, const TrainTest& data, Rank& rank) {
  Run run = make_run(plan.settings, rank.comm, role_of(plan));  // prints, measures, saves; SIGINT stops all ranks
  run.print_notes(plan.notes);  // on a table from a file: what its order means for memory, or what is ignored in it
  PipelineWorker worker(plan, data, rank);  // this rank's stages, their optimizer, and loaders of batches
  run.set_up_checkpoints(data, *worker.layers, *worker.optimizer);  // --resume loads both; each epoch saves both
  run.predict_with(make_predictor(plan, worker.pipeline.log()));    // how long the steps should have taken

  for (Epoch& epoch : run.epochs()) {
    for (const MicroBatches& batch : epoch.training_batches(worker.train_loader)) {
      if (is_by_hand(plan.settings.pipeline)) {  // --schedule by-hand
        Stage& stage = worker.pipeline.stage(rank.index);
        forward_backward_by_hand(stage, plan, batch, rank.comm, epoch.train_sums());
      } else {
        forward_backward(worker.pipeline, plan, batch, epoch.train_sums());  // from the table: --explain prints it
      }
      worker.pipeline.update(*worker.optimizer);  // this rank's layers: the optimizer's step, then zero_grad
    }
    evaluate(worker.pipeline, plan, epoch, worker.test_loader);  // the forwards of the same table, without graphs
  }
  print_sample(plan.settings, worker.pipeline, plan.schedule, rank.comm);  // --sample: what a model of text writes
}

void train(const Settings& settings) {
  const TrainTest data = open_data(settings);
  // The order by hand is that of the table "gpipe" with --receives at-use, which then serves --explain, the predictions
  // and evaluate().
  const Plan plan(settings, data.train);
  if (settings.run.explain) {
    return explain(plan);  // prints the table and its timeline, and does not train
  }
  // Runs train_rank once per rank, each on a thread of this process; under mpirun, for the one rank of this process.
  launch_ranks(plan, [&](Rank& rank) { train_rank(plan, data, rank); });
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
