/// @file
/// Chapter 2: a model over several ranks, one after the other.
///
/// The layers are divided among the ranks. A batch goes through them from the first rank to the last, and its gradient
/// comes back the same way. Each rank then needs memory for its own layers only. But while one rank works, all others
/// wait: this is model parallelism without any speed-up, and the next chapter's reason.

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

enum Tag { kActivations, kGradients };  // what a message is

/// A rank with the stage that it holds; the stages before and after are on the ranks before and after.
struct StageWorker {
  Rank& rank;
  const Plan& plan;
  Stage stage;
  ActionLog log;  // how long forwards, backwards and updates take

  bool is_first() const { return rank.index == 0; }
  bool is_last() const { return rank.index + 1 == rank.world; }
  /// [images, …]: what enters stage `number`.
  Shape input_shape(int number, std::int64_t images) const {
    return plan.shapes[static_cast<std::size_t>(number)].with(0, images);
  }
};

/// A batch through this rank's stage, forward. The last rank adds its loss and correct predictions to `sums`.
void forward(StageWorker& worker, const MicroBatches& batch, EpochSums& sums) {
  const int me = worker.rank.index;
  const ActionLog::Scope scope(worker.log, {Operation::forward, me, 0});
  Communicator& comm = worker.rank.comm;

  // Images enter at the first rank; the others receive the activations of the rank before them.
  const Tensor x = worker.is_first()
                       ? normalize(batch.images[0])
                       : comm.receive(worker.input_shape(me, batch.global_size), DType::float32, me - 1, kActivations);
  if (worker.is_last()) {
    Tensor logits;
    const Tensor loss = worker.stage.forward_with_loss(0, x, batch.labels[0], !worker.is_first(), &logits);
    sums.add(loss, logits, batch.labels[0]);
  } else {
    const Tensor y = worker.stage.forward(0, x, !worker.is_first());
    worker.log.note_message(me, y.bytes());
    comm.send(y, me + 1, kActivations);
  }
}

/// Its gradient, back.
void backward(StageWorker& worker, const MicroBatches& batch) {
  const int me = worker.rank.index;
  const ActionLog::Scope scope(worker.log, {Operation::backward, me, 0});
  Communicator& comm = worker.rank.comm;

  // The loss is the mean over the batch; the last stage has computed the sum.
  const double share = 1.0 / static_cast<double>(batch.global_size);
  const Tensor grad = worker.is_last() ? Tensor::full({}, share, DType::float32, comm.device())
                                       : comm.receive(worker.input_shape(me + 1, batch.global_size), DType::float32,
                                                      me + 1, kGradients);
  const Tensor grad_x = worker.stage.backward(0, grad);
  if (!worker.is_first()) {
    comm.send(grad_x, me - 1, kGradients);
  }
}

/// Tests the model: forwards alone.
void evaluate(StageWorker& worker, Epoch& epoch, MicroBatchLoader& batches) {
  const NoGrad no_grad;  // nothing is kept for a backward
  worker.stage.layers().train(false);
  for (const MicroBatches& batch : epoch.test(batches)) {
    forward(worker, batch, epoch.test_sums());
  }
  worker.stage.layers().train(true);
}

/// What each rank does. Which layers it holds is in the plan.
void train_rank(const Settings& settings, const Plan& plan, const TrainTest& data, Rank& rank) {
  Run run(settings, rank.comm, {.layers = plan.layers, .stages = plan.stages_text(), .loss_rank = plan.last_rank()});
  const auto layers = open_stages(settings.training, plan, data.train, rank).at(rank.index);
  const auto optimizer = open_optimizer(settings.training, layers->named_parameters());
  run.restore(*layers, *optimizer);  // with --resume from a checkpoint; saved after each epoch
  StageWorker worker{rank, plan, Stage(layers), ActionLog(rank.comm, rank.world)};
  run.predict_by([&] { return predict_step(plan, worker.log.mean_costs()); });  // shown in trace.json
  MicroBatchLoader train_batches = micro_batch_loader(settings, plan, data.train, rank, LoaderFor::training);
  MicroBatchLoader test_batches = micro_batch_loader(settings, plan, data.test, rank, LoaderFor::testing);

  for (Epoch& epoch : run.epochs()) {
    worker.log.clear();
    for (const MicroBatches& batch : epoch.train(train_batches)) {  // one micro-batch each: the whole batch
      forward(worker, batch, epoch.train_sums());
      backward(worker, batch);
      update(worker.log, *optimizer);  // each rank its own layers
    }
    // What the epoch should have taken with these times; for metrics.jsonl.
    epoch.set_prediction(predict(plan, worker.log.mean_costs(), train_batches.batches()));
    evaluate(worker, epoch, test_batches);
  }
}

void train(const Settings& settings) {
  if (settings.training.model == "toy") {
    if (!settings.run.out.empty() || !settings.run.resume.empty() || settings.run.explain ||
        settings.world.ranks != 2) {
      throw UsageError(
          "--model toy makes one step on two ranks, and prints it; it takes no --out, --resume, --explain, and no "
          "--ranks but 2");
    }
    return show_toy(settings);
  }
  const TrainTest data = open_data(settings);
  const Plan plan = make_plan(settings, data.train, "naive");
  if (settings.run.explain) {
    return explain(settings, plan);
  }
  show_toy(settings);  // one step of a model that is small enough to print
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
