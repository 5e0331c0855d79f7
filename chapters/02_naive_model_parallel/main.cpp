/// @file
/// Chapter 2: a model split over several ranks, which work one after the other.
///
/// The layers are divided into stages, one for each rank: a thread, or a process under mpirun, with a device of its
/// own. A batch goes through the stages from the first rank to the last, and its gradient comes back the same way. Each
/// rank needs memory for its own layers only. But while one rank works, all the others wait: the model can be larger,
/// but training is no faster. The next chapter addresses this.

#include "chapters/02_naive_model_parallel/toy.h"
#include "chapters/common/open.h"
#include "chapters/common/pipeline_steps.h"
#include "chapters/common/plan.h"
#include "chapters/common/prediction.h"
#include "chapters/common/program.h"
#include "chapters/common/run.h"
#include "core/autograd/grad_mode.h"
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
  ActionLog log;  // how long forwards, backwards and updates take, without the time spent waiting for messages

  bool is_first() const { return rank.index == 0; }
  bool is_last() const { return rank.index + 1 == rank.world; }
  /// [images, …]: what enters stage `number`.
  Shape input_shape(int number, std::int64_t images) const {
    return plan.shapes[static_cast<std::size_t>(number)].with(0, images);
  }
};

/// Runs a batch forward through this rank's stage. The last rank adds the loss and the number of correct predictions to
/// `sums`.
void forward(StageWorker& worker, const MicroBatches& batch, EpochSums& sums) {
  const int me = worker.rank.index;
  const ActionLog::Scope scope(worker.log, {Operation::forward, me, kWholeBatch});
  Communicator& comm = worker.rank.comm;

  // Images enter at the first rank, and need no gradient. The others receive the activations of the rank before them.
  const bool x_needs_grad = !worker.is_first();
  const Tensor x = worker.is_first()
                       ? normalize(batch.images[0])
                       : comm.receive(worker.input_shape(me, batch.global_size), DType::float32, me - 1, kActivations);
  if (worker.is_last()) {
    Tensor logits;
    const Tensor loss = worker.stage.forward_with_loss(kWholeBatch, x, batch.labels[0], x_needs_grad, &logits);
    sums.add(loss, logits, batch.labels[0]);
  } else {
    const Tensor y = worker.stage.forward(kWholeBatch, x, x_needs_grad);
    worker.log.note_message(me, y.bytes());  // for the prediction; the gradient that comes back is as large
    comm.send(y, me + 1, kActivations);
  }
}

/// Sends the gradient of a batch back through this rank's stage.
void backward(StageWorker& worker, const MicroBatches& batch) {
  const int me = worker.rank.index;
  const ActionLog::Scope scope(worker.log, {Operation::backward, me, kWholeBatch});
  Communicator& comm = worker.rank.comm;

  // The loss is the mean over the batch, but the last stage computed the sum: hence 1 / N.
  const double share = 1.0 / static_cast<double>(batch.global_size);
  const Tensor grad = worker.is_last() ? Tensor::full({}, share, DType::float32, comm.device())
                                       : comm.receive(worker.input_shape(me + 1, batch.global_size), DType::float32,
                                                      me + 1, kGradients);
  const Tensor grad_x = worker.stage.backward(kWholeBatch, grad);
  if (!worker.is_first()) {
    comm.send(grad_x, me - 1, kGradients);
  }
}

/// Tests the model, with forwards only.
void evaluate(StageWorker& worker, Epoch& epoch, MicroBatchLoader& batches) {
  const NoGrad no_grad;  // nothing is kept for a backward
  worker.stage.layers().train(false);
  for (const MicroBatches& batch : epoch.test(batches)) {
    forward(worker, batch, epoch.test_sums());
  }
  worker.stage.layers().train(true);
}

/// Trains on one rank. The plan says which layers the rank holds.
void train_rank(const Settings& settings, const Plan& plan, const TrainTest& data, Rank& rank) {
  Run run(settings, rank.comm, {.layers = plan.layers, .stages = plan.stages_text(), .loss_rank = plan.last_rank()});
  const auto layers =
      open_stages(settings.training, plan, data.train, rank).at(rank.index);  // creates only this rank's
  const auto optimizer = open_optimizer(settings.training, layers->named_parameters());
  run.restore(*layers, *optimizer);  // with --resume from a checkpoint; saved after each epoch
  StageWorker worker{rank, plan, Stage(layers), ActionLog(rank.comm, rank.world)};
  // The predicted timeline of one step, shown in trace.json beside the measured one.
  run.predict_by([&] { return predict_step(plan, worker.log.mean_costs()); });
  MicroBatchLoader train_batches = micro_batch_loader(settings, plan, data.train, rank, LoaderFor::training);
  MicroBatchLoader test_batches = micro_batch_loader(settings, plan, data.test, rank, LoaderFor::testing);

  for (Epoch& epoch : run.epochs()) {
    worker.log.clear();
    for (const MicroBatches& batch : epoch.train(train_batches)) {  // one micro-batch each: the whole batch
      forward(worker, batch, epoch.train_sums());
      backward(worker, batch);
      update(worker.log, *optimizer);  // the optimizer's step and zero_grad, for this rank's layers
    }
    // How long the epoch should have taken, given the measured mean times; for metrics.jsonl.
    epoch.set_prediction(predict(plan, worker.log.mean_costs(), train_batches.batches()));
    evaluate(worker, epoch, test_batches);
  }
}

void train(const Settings& settings) {
  if (settings.training.model == "toy") {
    if (!settings.run.out.empty() || !settings.run.resume.empty() || settings.run.explain ||
        settings.world.ranks != 2) {
      throw UsageError(
          "--model toy runs and prints a single step on two ranks; leave out --out, --resume and --explain, and use "
          "--ranks 2");
    }
    return show_toy(settings);
  }
  const TrainTest data = open_data(settings);
  const Plan plan = make_plan(settings, data.train, "naive");
  if (settings.run.explain) {
    return explain(settings, plan);
  }
  show_toy(settings);  // first, one step of a model that is small enough to print, always on two ranks
  // Runs train_rank once per rank.
  launch(plan.world, [&](Rank& rank) { train_rank(settings, plan, data, rank); });
}

const Chapter kChapter{
    .number = 2,
    .program = "ch02_naive_model_parallel",
    .title = "Chapter 2: a model over several ranks, which work one after the other.",
    .example = "ch02_naive_model_parallel --data data/generated --ranks 2 --epochs 5 --out runs/naive",
    .defaults = {.pipeline = {.schedule = "naive", .receives = "at-use"}, .world = {.ranks = 2}},
};

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) { return stagecoach::run_program(argc, argv, stagecoach::kChapter, stagecoach::train); }
