/// @file
/// Chapter 2: a model over several ranks, one after the other.
///
/// The layers are dealt to ranks. A batch goes through them from the first rank to the last, and its gradient comes
/// back the same way. Each rank then needs memory for its own layers only. But while one rank works, all others wait:
/// this is model parallelism without any speed-up, and the next chapter's reason.

#include "chapters/02_naive_model_parallel/toy.h"
#include "chapters/common/open.h"
#include "chapters/common/plan.h"
#include "chapters/common/prediction.h"
#include "chapters/common/program.h"
#include "chapters/common/run_log.h"
#include "core/autograd/grad_mode.h"
#include "core/ops.h"
#include "parallel/pipeline/action_log.h"
#include "parallel/pipeline/stage.h"

namespace stagecoach {
namespace {

enum Tag { kActivations, kGradients };  // what a message is

/// A rank with the stage that it holds; its neighbours are the ranks beside it.
struct Place {
  Rank& rank;
  const Plan& plan;
  Stage stage;
  ActionLog log;

  bool is_first() const { return rank.index == 0; }
  bool is_last() const { return rank.index + 1 == rank.world; }
  /// [pictures, …]: what enters stage `number`.
  Shape entering(int number, std::int64_t pictures) const {
    return plan.shapes[static_cast<std::size_t>(number)].with(0, pictures);
  }
};

/// A batch through this rank's stage, forward. On the last rank `loss` [] and `correct` [] get their sums.
void forward(Place& here, const Step& batch, Tensor& loss, Tensor& correct) {
  const ActionLog::Scope scope(here.log, {Operation::forward, here.rank.index, 0});
  Communicator& comm = here.rank.comm;

  // Pictures enter at the first rank; the others get what the rank before them made of them.
  const Tensor x = here.is_first() ? normalize(batch.images[0])
                                   : comm.receive(here.entering(here.rank.index, batch.pictures), DType::float32,
                                                  here.rank.index - 1, kActivations);
  if (here.is_last()) {
    Tensor scores;
    accumulate(here.stage.forward_with_loss(0, x, batch.labels[0], !here.is_first(), &scores), loss);
    count_correct(scores, batch.labels[0], correct);
  } else {
    const Tensor y = here.stage.forward(0, x, !here.is_first());
    here.log.note_message(here.rank.index, y.bytes());
    comm.send(y, here.rank.index + 1, kActivations);
  }
}

/// Its gradient, back.
void backward(Place& here, const Step& batch) {
  const ActionLog::Scope scope(here.log, {Operation::backward, here.rank.index, 0});
  Communicator& comm = here.rank.comm;

  // The loss is the mean over the batch; the last stage gave the sum.
  const double share = 1.0 / static_cast<double>(batch.pictures);
  const Tensor grad = here.is_last() ? Tensor::full({}, share, DType::float32, comm.device())
                                     : comm.receive(here.entering(here.rank.index + 1, batch.pictures), DType::float32,
                                                    here.rank.index + 1, kGradients);
  const Tensor grad_x = here.stage.backward(0, grad);
  if (!here.is_first()) {
    comm.send(grad_x, here.rank.index - 1, kGradients);
  }
}

/// The share of the test pictures that are right: on the last rank; 0 on the others.
double accuracy(Place& here, StepLoader& loader, const std::function<void()>& after_batch) {
  const NoGrad no_grad;  // nothing is kept for a backward
  here.stage.layers().train(false);
  Tensor loss = Tensor::zeros({}, DType::float64, here.rank.device);
  Tensor correct = Tensor::zeros({}, DType::int32, here.rank.device);
  std::int64_t pictures = 0;
  loader.start_epoch(1);
  while (const auto batch = loader.next()) {
    forward(here, *batch, loss, correct);
    pictures += batch->pictures;
    after_batch();
  }
  here.stage.layers().train(true);
  return correct.item() / static_cast<double>(pictures);
}

/// What each rank does.
void train_rank(const Settings& settings, const Plan& plan, const TrainTest& data, Rank& rank) {
  RunLog log(settings, rank.comm, plan.layers, plan.last_rank());
  const auto layers = open_stages(settings.training, plan, data.train, rank).at(rank.index);
  const auto optimizer = open_optimizer(settings.training, layers->named_parameters());
  log.restore(*layers, *optimizer);
  Place here{rank, plan, Stage(layers), ActionLog(rank.comm, rank.world)};
  log.predict_by([&] { return predict_step(plan, here.log.mean_costs()); });
  StepLoader training = step_loader(settings, plan, data.train, rank, LoaderFor::training);
  StepLoader testing = step_loader(settings, plan, data.test, rank, LoaderFor::testing);

  while (log.epochs_left()) {
    training.start_epoch(log.progress().epoch, log.progress().step);
    log.start_epoch(training.batches());
    here.log.clear();
    while (const auto batch = log.next(training)) {
      forward(here, *batch, log.sums().loss, log.sums().correct);
      backward(here, *batch);
      {
        const ActionLog::Scope update(here.log);
        optimizer->step();  // each rank its own layers
        optimizer->zero_grad();
      }
      log.add_step(batch->pictures, *layers, *optimizer);
    }
    log.stop_clock();
    const Expected expected = expect(plan, here.log.mean_costs(), training.batches());
    const double share = accuracy(here, testing, [&] { log.stop_if_asked(*layers, *optimizer); });
    log.finish_epoch(share, *layers, *optimizer, expected);
  }
  log.finish();
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
  show_toy(settings);
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
