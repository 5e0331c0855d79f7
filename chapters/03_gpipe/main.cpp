/// @file
/// Chapter 3: GPipe. A batch is split into micro-batches, which follow each other through the ranks.
///
/// While the second rank works on the first micro-batch, the first rank works on the second. First all micro-batches go
/// forward, then all go backward; then each rank updates its layers. Ranks still wait at the start and at the end of a
/// step (the bubble), for a smaller share of it with more micro-batches. In exchange each rank keeps the activations of
/// all micro-batches until their backwards.
///
/// The program has this order twice: written out by hand, as sends and receives in two loops, and as a table of actions
/// that an executor runs (forward_backward in chapters/common/pipeline_steps.h). Both give bit-identical weights, and
/// the later chapters run tables.

#include "chapters/common/open.h"
#include "chapters/common/pipeline_steps.h"
#include "chapters/common/plan.h"
#include "chapters/common/prediction.h"
#include "chapters/common/program.h"
#include "chapters/common/run.h"
#include "core/ops.h"

namespace stagecoach {
namespace {

/// One step, written by hand: what this rank does with the micro-batches of a batch.
void forward_backward_by_hand(Pipeline& pipeline, const Plan& plan, const MicroBatches& batch, Communicator& comm,
                              EpochSums& sums) {
  const int me = comm.rank();
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
  for (int i = 0; i < m; ++i) {
    const ActionLog::Scope scope(pipeline.log(), {Operation::forward, me, i});
    const auto number = static_cast<std::size_t>(i);
    const Tensor x =
        first ? normalize(batch.images[number]) : comm.receive(shape(me, i), DType::float32, me - 1, forward_tag(i));
    if (last) {
      Tensor logits;
      const Tensor loss = stage.forward_with_loss(i, x, batch.labels[number], x_needs_grad, &logits);
      sums.add(loss, logits, batch.labels[number]);
    } else {
      const Tensor y = stage.forward(i, x, x_needs_grad);
      pipeline.log().note_message(me, y.bytes());  // for the prediction
      sends.push_back(comm.send_async(y, me + 1, forward_tag(i)));
    }
  }

  // All backwards, in the order of the forwards: floating-point sums depend on the order, and this is the order of one
  // device. As in chapter 1, each image weighs 1 / N in the loss, where N is the size of the whole batch.
  const Tensor share = Tensor::full({}, 1.0 / static_cast<double>(batch.global_size), DType::float32, comm.device());
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

/// Trains on one rank.
void train_rank(const Settings& settings, const Plan& plan, const TrainTest& data, Rank& rank) {
  Run run(settings, rank.comm, {.layers = plan.layers, .stages = plan.stages_text(), .loss_rank = plan.last_rank()});
  run.print_notes(plan.notes);
  const auto stages = make_stages(settings.training, plan, data.train, rank);
  const auto layers = joined(stages);  // as one module, for the optimizer
  const auto optimizer = make_optimizer(settings.training, layers->named_parameters());
  run.set_up_checkpoints(*layers, *optimizer);  // with --resume from a checkpoint; saved after each epoch
  Pipeline pipeline = make_pipeline(settings.pipeline, plan, stages, rank.comm);  // runs the plan's table of actions
  run.show_in_trace([&] { return predicted_timeline(plan, pipeline.log().mean_costs()); });  // shown in trace.json
  MicroBatchLoader train_loader = make_micro_batch_loader(settings, plan, data.train, rank, LoaderFor::training);
  MicroBatchLoader test_loader = make_micro_batch_loader(settings, plan, data.test, rank, LoaderFor::testing);

  for (Epoch& epoch : run.epochs()) {
    pipeline.log().clear();
    for (const MicroBatches& batch : epoch.training_batches(train_loader)) {
      if (is_by_hand(settings.pipeline)) {
        forward_backward_by_hand(pipeline, plan, batch, rank.comm, epoch.train_sums());
      } else {
        forward_backward(pipeline, plan, batch,
                         epoch.train_sums());  // the same order, from the table that --explain prints
      }
      update(pipeline.log(), *optimizer);  // each rank its own layers
    }
    // How long the epoch should have taken, given the measured mean times; for metrics.jsonl.
    epoch.set_predicted_time(predicted_time(plan, pipeline.log().mean_costs(), train_loader.batch_count()));
    evaluate(pipeline, plan, epoch, test_loader);
  }
}

void train(const Settings& settings) {
  const TrainTest data = open_data(settings);
  const Plan plan =
      make_plan(settings, data.train, is_by_hand(settings.pipeline) ? "gpipe" : settings.pipeline.schedule);
  if (settings.run.explain) {
    return explain(settings, plan);
  }
  launch(plan.world, [&](Rank& rank) { train_rank(settings, plan, data, rank); });
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
