/// @file
/// Chapter 2: a model split over several ranks, which work one after the other.
///
/// The layers are divided into stages, one for each rank: a thread, or a process under mpirun, with a device of its
/// own. A batch goes through the stages from the first rank to the last, and its gradient comes back the same way. Each
/// rank needs memory for its own layers only. But in training, while one rank works, all the others wait: the model can
/// be larger, but training is no faster. The next chapter addresses this.

#include "chapters/02_naive_model_parallel/toy.h"
#include "chapters/common/open.h"
#include "chapters/common/pipeline_steps.h"
#include "chapters/common/plan.h"
#include "chapters/common/prediction.h"
#include "chapters/common/program.h"
#include "chapters/common/run.h"
#include "core/autograd/grad_mode.h"
#include "core/base/throw_if.h"
#include "core/ops.h"
#include "parallel/pipeline/action_log.h"
#include "parallel/pipeline/stage.h"

namespace stagecoach {
namespace {

enum Tag { kActivations, kGradients };  // what a message contains
constexpr int kWholeBatch = 0;          // the number of the only micro-batch

/// A rank with the stage that it holds; the stages before and after are on the ranks before and after.
struct StageWorker {
  Rank& rank;
  const Plan& plan;
  Stage stage;
  ActionLog log;  // how long forwards, backwards and updates take, for the predictions

  bool is_first() const { return rank.index == 0; }
  bool is_last() const { return rank.index + 1 == rank.world; }
  /// [images, …]: what enters stage `number`.
  Shape input_shape(int number, std::int64_t images) const {
    return plan.shapes[static_cast<std::size_t>(number)].with(0, images);
  }
};

/// Runs a batch forward through this rank's stage, which keeps the autograd graph for the backward. The last rank adds
/// the loss and the number of correct predictions to `sums`. A batch is one micro-batch here, hence [0]; the loader has
/// put its images on the first rank's device and its labels on the last one's.
void forward(StageWorker& worker, const MicroBatches& batch, EpochSums& sums) {
  const int me = worker.rank.index;  // the number of this rank, and of its stage
  const ActionLog::Scope timed(worker.log, {Operation::forward, me, kWholeBatch});  // less what comm waited
  Communicator& comm = worker.rank.comm;

  // Images enter at the first rank, and need no gradient. The others receive the activations of the rank before them.
  const bool x_needs_grad = !worker.is_first();
  const Tensor x = worker.is_first()
                       ? normalize(batch.images[0])  // bytes to floats from -1 to 1
                       : comm.receive(worker.input_shape(me, batch.global_size), DType::float32, me - 1, kActivations);
  if (worker.is_last()) {
    Tensor logits;
    const Tensor loss_sum = worker.stage.forward_with_loss(kWholeBatch, x, batch.labels[0], x_needs_grad, &logits);
    sums.add(loss_sum, logits, batch.labels[0]);
  } else {
    const Tensor y = worker.stage.forward(kWholeBatch, x, x_needs_grad);
    worker.log.note_message(me, y.bytes(), me + 1);  // for the predictions; the gradient is as large
    comm.send(y, me + 1, kActivations);              // waits until the next rank has it
  }
}

/// Sends the gradient of a batch back through this rank's stage, along the graph that forward() kept in it. The stage
/// adds to the gradients of its parameters, and returns the gradient of its input.
void backward(StageWorker& worker, const MicroBatches& batch) {
  const int me = worker.rank.index;
  const ActionLog::Scope timed(worker.log, {Operation::backward, me, kWholeBatch});
  Communicator& comm = worker.rank.comm;

  // The loss is the mean over the N images of the batch, but forward_with_loss returned their sum: hence 1 / N.
  const double share = 1.0 / static_cast<double>(batch.global_size);
  const Tensor grad = worker.is_last() ? Tensor::full({}, share, DType::float32, comm.device())
                                       : comm.receive(worker.input_shape(me + 1, batch.global_size), DType::float32,
                                                      me + 1, kGradients);
  const Tensor grad_x = worker.stage.backward(kWholeBatch, grad);
  if (!worker.is_first()) {
    comm.send(grad_x, me - 1, kGradients);
  }
}

/// Tests the model, with forwards only. No gradient comes back: a rank goes on once the next one has its output.
void evaluate(StageWorker& worker, Epoch& epoch, MicroBatchLoader& loader) {
  const NoGrad no_grad;  // nothing is kept for a backward
  worker.stage.layers().train(false);
  for (const MicroBatches& batch : epoch.test_batches(loader)) {
    forward(worker, batch, epoch.test_sums());
  }
  worker.stage.layers().train(true);
}

/// Trains on one rank. The plan says which layers the rank holds.
void train_rank(const Settings& settings, const Plan& plan, const TrainTest& data, Rank& rank) {
  // Prints, measures and saves; on SIGINT all ranks finish the same step, save and exit. The role, the same on all
  // ranks, says which layers each rank saves, and that the last rank has the losses.
  Run run(settings, rank.comm, role_of(plan));
  const auto stages = make_stages(settings.training, plan, data.train, rank);  // layers by stage; only this rank's
  const auto layers = stages.at(rank.index);
  const auto optimizer = make_optimizer(settings.training, layers->named_parameters());
  run.set_up_checkpoints(data, *layers, *optimizer);  // --resume: loads both; after each epoch, saves both to --out
  StageWorker worker{rank, plan, make_stage(settings, layers), ActionLog(rank.comm, rank.world)};  // a stage per rank
  // For metrics.jsonl and trace.json: how long the steps should have taken, given the measured times of all ranks.
  run.predict_with(make_predictor(plan, worker.log));
  MicroBatchLoader train_loader = make_micro_batch_loader(settings, plan, data.train, rank, LoaderFor::training);
  MicroBatchLoader test_loader = make_micro_batch_loader(settings, plan, data.test, rank, LoaderFor::testing);

  for (Epoch& epoch : run.epochs()) {
    for (const MicroBatches& batch : epoch.training_batches(train_loader)) {
      forward(worker, batch, epoch.train_sums());
      backward(worker, batch);
      update(worker.log, *optimizer);  // this rank's layers: the optimizer's step, then zero_grad
    }
    evaluate(worker, epoch, test_loader);
  }
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
  // Splits the layers over the ranks. Only --explain and the predictions read the plan's schedule, "naive": the order
  // of forward and backward above.
  const Plan plan = make_plan(settings, data.train, settings.pipeline.schedule);
  if (settings.run.explain) {
    return explain(settings, plan);  // prints the table and its timeline, and does not train
  }
  show_toy(settings);  // first, one step of a model that is small enough to print, on two threads of this process
  // Runs train_rank once per rank, each on a thread of this process; under mpirun, for the one rank of this process.
  launch(plan.world, [&](Rank& rank) { train_rank(settings, plan, data, rank); });
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
