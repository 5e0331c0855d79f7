/// @file
/// Chapter 2: a model split over several ranks, which work one after the other.
///
/// The layers are divided into stages, one for each rank: a thread, or a process under mpirun, with a device of its
/// own. A batch goes through the stages from the first rank to the last, and its gradient comes back the same way. Each
/// rank needs memory for its own layers only. But in training, while one rank works, all the others wait: the model can
/// be larger, but training is no faster. The next chapter addresses this.

#include "chapters/02_naive_model_parallel/toy.h"
#include "chapters/common/pipeline_steps.h"
#include "chapters/common/plan.h"
#include "chapters/common/prediction.h"
#include "chapters/common/program.h"
#include "chapters/common/run.h"
#include "core/autograd/grad_mode.h"
#include "core/base/throw_if.h"
#include "parallel/pipeline/stage_messages.h"

namespace stagecoach {
namespace {

constexpr int kWholeBatch = 0;  // the number of the only micro-batch

/// Runs a batch forward through this rank's stage, which keeps the autograd graph for the backward. The last rank adds
/// the loss and the number of correct predictions to `sums`. The loader has put the batch's images on the first rank's
/// device and its labels on the last one's; activations are messages.
void forward(Stage& stage, StageMessages& messages, const MicroBatches& batch, EpochSums& sums) {
  const BatchScope position(batch.position);  // for layers that draw random numbers (--dropout)
  // Images enter at the first rank, and need no gradient. The others receive the activations of the rank before them.
  const bool x_needs_grad = !messages.is_first();
  const Tensor x = messages.is_first() ? batch.input(kWholeBatch)                // [N, 3, H, W]
                                       : messages.receive_forward(kWholeBatch);  // [N, …]
  if (messages.is_last()) {
    Tensor logits;
    const Tensor loss_sum =
        stage.forward_with_loss(kWholeBatch, x, batch.target(kWholeBatch), x_needs_grad, &logits);  // []
    sums.add(loss_sum, logits, batch.target(kWholeBatch));
  } else {
    messages.send_forward(kWholeBatch, stage.forward(kWholeBatch, x, x_needs_grad));
    messages.wait_for_sends();  // until the next rank has them
  }
}

/// Sends the gradient of a batch back through this rank's stage, along the graph that forward() kept in it. The stage
/// adds to the gradients of its parameters, and returns the gradient of its input.
void backward(Stage& stage, StageMessages& messages, const MicroBatches& batch) {
  // The loss is the mean over the N images of the batch, but forward_with_loss returned their sum: hence 1 / N.
  const double share = 1.0 / static_cast<double>(batch.global_size);
  const Tensor grad = messages.is_last() ? Tensor::full({}, share, DType::float32, batch.targets[0].device())
                                         : messages.receive_backward(kWholeBatch);  // as large as the activations
  const Tensor grad_x = stage.backward(kWholeBatch, grad);
  if (!messages.is_first()) {
    messages.send_backward(kWholeBatch, grad_x);
    messages.wait_for_sends();
  }
}

/// Tests the model, with forwards only. No gradient comes back: a rank goes on once the next one has its output.
void evaluate(PipelineWorker& worker, const Plan& plan, Communicator& comm, Epoch& epoch) {
  const NoGrad no_grad;  // nothing is kept for a backward
  worker.layers->train(false);
  for (const MicroBatches& batch : epoch.test_batches(worker.test_loader)) {
    StageMessages messages(comm, plan.shapes, batch.sizes);
    forward(worker.pipeline.stage(comm.rank()), messages, batch, epoch.test_sums());
  }
  worker.layers->train(true);
}

/// Trains on one rank. The plan says which layers the rank holds.
void train_rank(const Plan& plan, const TrainTest& data, Rank& rank) {
  // Prints, measures and saves; on SIGINT all ranks stop after the same step. The role says what this rank saves.
  Run run = make_run(plan.settings, rank.comm, role_of(plan));
  PipelineWorker worker(plan, data, rank);  // this rank's stage, its optimizer, and loaders of batches
  run.set_up_checkpoints(data, *worker.layers, *worker.optimizer);  // --resume loads both; each epoch saves both
  run.predict_with(make_predictor(plan, worker.pipeline.log()));    // how long the steps should have taken
  for (Epoch& epoch : run.epochs()) {
    for (const MicroBatches& batch : epoch.training_batches(worker.train_loader)) {
      Stage& stage = worker.pipeline.stage(rank.index);             // its number is the rank's
      StageMessages messages(rank.comm, plan.shapes, batch.sizes);  // to and from the ranks before and after this one
      forward(stage, messages, batch, epoch.train_sums());
      backward(stage, messages, batch);
      worker.pipeline.update(*worker.optimizer);  // this rank's layers: the optimizer's step, then zero_grad
    }
    evaluate(worker, plan, rank.comm, epoch);
  }
  print_sample(plan.settings, worker.pipeline, plan.schedule, rank.comm);  // --sample: what a model of text writes
}

void train(const Settings& settings) {
  if (settings.training.model == "toy") {
    throw_if<UsageError>(
        !settings.run.out.empty() || !settings.run.resume.empty() || settings.run.explain || settings.world.ranks != 2,
        "--model toy runs and prints a single step on two ranks; leave out --out, --resume and --explain, and use "
        "--ranks 2");
    return show_toy(settings);
  }
  const TrainTest data = open_data(settings);
  // Splits the layers. Only --explain and the predictions read its schedule, "naive": the order of the functions above.
  const Plan plan(settings, data.train);
  if (settings.run.explain) {
    return explain(plan);  // prints the table and its timeline, and does not train
  }
  show_toy(settings);  // first, one step of a model that is small enough to print, on two threads of this process
  // Runs train_rank once per rank, each on a thread of this process; under mpirun, for the one rank of this process.
  launch_ranks(plan, [&](Rank& rank) { train_rank(plan, data, rank); });
}

const Chapter kChapter{
    .number = 2,
    .program = "ch02_naive_model_parallel",
    .title = "Chapter 2: a model over several ranks, which work one after the other.",
    .example = "ch02_naive_model_parallel --data data/generated --ranks 2 --epochs 5 --out runs/naive",
    // The order of forward() and backward(): one batch at a time, each receive posted where its tensor is used.
    .defaults = {.pipeline = {.schedule = "naive", .receives = "at-use"}, .world = {.ranks = 2}},
};

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) { return stagecoach::run_program(argc, argv, stagecoach::kChapter, stagecoach::train); }
