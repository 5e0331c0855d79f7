/// @file
/// Chapter 4: 1F1B, and PipeDream, which takes the flush out of it.
///
/// GPipe runs all forwards before the first backward. 1F1B runs a backward as soon as it can, and then alternates
/// forwards and backwards: `forward_backward_by_hand` (--versions flush --schedule by-hand). Like GPipe it drains, or
/// flushes, the pipeline before each update. `train_without_flush`, the default, does not: batches follow each other,
/// and each stage updates its weights as soon as it has a gradient. By the time a micro-batch comes back, a stage may
/// have newer weights than those that its forward used. A backward through other weights does not compute a gradient.
/// So each stage keeps old versions of its weights, and --versions says which one a forward uses.

#include <algorithm>
#include <optional>

#include "chapters/04_pipedream/drain_control.h"
#include "chapters/04_pipedream/microbatch_iterator.h"
#include "chapters/04_pipedream/stage_worker.h"
#include "chapters/04_pipedream/stream_plan.h"
#include "chapters/04_pipedream/stream_prediction.h"
#include "chapters/common/open.h"
#include "chapters/common/program.h"
#include "chapters/common/run.h"
#include "core/autograd/node.h"
#include "core/ops.h"
#include "parallel/data_parallel/average_gradients.h"
#include "parallel/pipeline/weight_versions.h"
#include "parallel/schedule/ledger.h"

namespace stagecoach {
namespace {

/// 1F1B by hand: what rank r of p does with one batch, split into micro-batches. Stage r is on rank r. Tags: even for
/// activations, odd for gradients.
void forward_backward_by_hand(StageWorker& worker, const MicroBatches& batch, EpochSums& sums) {
  Communicator& comm = worker.rank.comm;
  const int r = comm.rank();
  const int p = comm.size();
  const int m = static_cast<int>(batch.sizes.size());
  Stage& stage = worker.pipeline.stage(r);
  std::vector<PendingSend> sends;

  // What enters a stage with micro-batch i: [n, …]. A gradient has the shape of what it is the gradient of.
  const auto shape = [&](int entered, int i) {
    return worker.plan.shapes[static_cast<std::size_t>(entered)].with(0, batch.sizes[static_cast<std::size_t>(i)]);
  };
  const auto forward = [&](int i) {
    const ActionLog::Scope scope(worker.pipeline.log(), {Operation::forward, r, i});
    const auto number = static_cast<std::size_t>(i);
    const Tensor x = r == 0 ? normalize(batch.images[number]) : comm.receive(shape(r, i), DType::float32, r - 1, 2 * i);
    if (r == p - 1) {
      Tensor logits;
      const Tensor loss = stage.forward_with_loss(i, x, batch.labels[number], r > 0, &logits);
      sums.add(loss, logits, batch.labels[number]);
    } else {
      const Tensor y = stage.forward(i, x, r > 0);
      worker.pipeline.log().note_message(r, y.bytes());  // for the prediction
      sends.push_back(comm.send_async(y, r + 1, 2 * i));
    }
  };
  // 1 / N: losses are summed per micro-batch, and the batch's loss is the mean of all N.
  const Tensor share = Tensor::full({}, 1.0 / static_cast<double>(batch.global_size), DType::float32, comm.device());
  const auto backward = [&](int i) {
    const ActionLog::Scope scope(worker.pipeline.log(), {Operation::backward, r, i});
    const Tensor grad = r == p - 1 ? share : comm.receive(shape(r + 1, i), DType::float32, r + 1, 2 * i + 1);
    const Tensor grad_x = stage.backward(i, grad);
    if (r > 0) {
      sends.push_back(comm.send_async(grad_x, r - 1, 2 * i + 1));
    }
  };

  const int warm_up = std::min(p - r - 1, m);  // forwards, one for each later rank
  for (int i = 0; i < warm_up; ++i) {
    forward(i);
  }
  for (int i = warm_up; i < m; ++i) {  // one forward, one backward
    forward(i);
    backward(i - warm_up);
  }
  for (int i = m - warm_up; i < m; ++i) {  // the flush: no forward of the next batch fills the gaps
    backward(i);
  }
  for (const PendingSend& send : sends) {
    send.wait();
  }
}

void train_by_hand(StageWorker& worker, Epoch& epoch, MicroBatchLoader& loader) {
  for (const MicroBatches& batch : epoch.training_batches(loader)) {
    forward_backward_by_hand(worker, batch, epoch.train_sums());
    const auto number = static_cast<int>(epoch.steps_done());
    const ActionLog::Scope scope(worker.pipeline.log(), {Operation::update, worker.stage, number});
    update(worker, epoch, number);
  }
}

/// Without the flush: the epoch's remaining batches run back to back, in the order of one table of actions.
void train_without_flush(StageWorker& worker, Epoch& epoch, MicroBatchLoader& loader, std::int64_t images) {
  const StreamPlan& plan = worker.plan;
  Pipeline& pipeline = worker.pipeline;
  epoch.start_training(loader);
  const std::vector<std::int64_t> sizes = plan.microbatch_sizes(images, epoch.steps_done());
  if (sizes.empty()) {
    return epoch.finish_training();  // none left: this run resumed from a stop after the epoch's last batch
  }
  const Schedule schedule = plan.schedule_for(sizes.size());
  const auto& actions = schedule.ranks[static_cast<std::size_t>(worker.rank.index)];
  const NamedTensors parameters = worker.layers->named_parameters();
  WeightVersions weights(parameters, schedule, make_ledger(schedule, plan.versions), worker.rank.index);
  DrainControl drain(schedule, epoch);  // after a request to stop: which batches still run
  MicrobatchIterator microbatches([&] { return epoch.next_batch(loader); }, plan.microbatches_per_batch);
  const auto see_logits = [&](int i, const Tensor& loss, const Tensor& logits) {
    epoch.train_sums().add(loss, logits, microbatches.labels(i));
  };

  pipeline.begin(schedule, microbatches.data(sizes), {.see_logits = see_logits});
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const Action& action = actions[i];
    const auto [first, end] = drain.admitted(action);  // the batches that it serves, numbered within the epoch
    if (first == end) {
      continue;  // a stop was requested: later batches are skipped, the earlier ones drain
    }
    if (action.operation == Operation::reduce_grad) {
      const ActionLog::Scope scope(pipeline.log(), action);
      average_gradients(parameters, static_cast<int>(end - first), *worker.replicas);
    } else if (action.operation == Operation::update) {
      {
        const ActionLog::Scope scope(pipeline.log(), action);
        weights.choose(i);  // makes the next version; keeps the old one while a backward still needs it
        update(worker, epoch, first);
      }
      for (std::int64_t batch = first; batch < end; ++batch) {
        epoch.add_step(std::min(plan.batch_size, images - batch * plan.batch_size));
      }
    } else {
      weights.choose(i);         // a forward uses the version of --versions, a backward that of its forward
      pipeline.perform(action);  // computes, sends, or posts a receive
    }
    weights.free_unneeded(i);  // versions that no later action uses
  }
  pipeline.finish();
  drain.finish();
  epoch.stop_if_refused();
  epoch.finish_training();
}

/// Trains the stage of this rank.
void train_rank(const Settings& settings, const StreamPlan& plan, const TrainTest& data, Rank& rank) {
  std::optional<UncheckedVersions> unchecked;
  if (!settings.pipeline.version_check) {
    unchecked.emplace();  // autograd no longer refuses a backward whose weights have changed
  }
  Run run(settings, rank.comm,
          {.layers = plan.layers,
           .stages = plan.stages_text(),
           .replica_of = plan.first_rank(plan.schedule.stage_of(rank.index)),
           .loss_rank = plan.last_rank(),
           .splits_losses = plan.schedule.replicas_of(plan.stages() - 1) > 1});
  StageWorker worker = make_stage_worker(settings, plan, data.train, rank);
  run.set_up_checkpoints(*worker.layers, *worker.optimizer);  // with --resume from a checkpoint; saved after each epoch
  run.show_in_trace([&] { return predicted_timeline(plan, worker.pipeline.log()); });  // shown in trace.json
  MicroBatchLoader train_loader = make_micro_batch_loader(settings, plan, data.train, rank, LoaderFor::training);
  MicroBatchLoader test_loader = make_micro_batch_loader(settings, plan, data.test, rank, LoaderFor::testing);

  for (Epoch& epoch : run.epochs()) {
    worker.pipeline.log().clear();
    if (is_by_hand(settings.pipeline)) {
      train_by_hand(worker, epoch, train_loader);
    } else {
      train_without_flush(worker, epoch, train_loader, data.train.size());
    }
    sync_replicas(worker);  // checks their weights; shares batch norm's statistics
    epoch.set_predicted_time(predicted_time(plan, worker.pipeline.log()));
    evaluate(worker, epoch, test_loader, data.test.size());
  }
}

void train(const Settings& settings) {
  const TrainTest data = open_data(settings);
  const StreamPlan plan = make_stream_plan(settings, data.train);
  if (settings.run.explain) {
    return explain_stream(settings, plan);
  }
  introduce(settings, plan);  // prints what --versions and --ledger call for
  const Settings chosen = with_stages_of(plan, settings);
  launch(plan.world, [&](Rank& rank) { train_rank(chosen, plan, data, rank); });
}

const Chapter kChapter{
    .number = 4,
    .program = "ch04_pipedream",
    .title = "Chapter 4: PipeDream, a pipeline that never drains, and versions of its weights.",
    .example = "ch04_pipedream --data data/generated --ranks 2 --versions stash --epochs 5 --out runs/pipedream",
    .defaults = {.pipeline = {.versions = Versions::stash}, .world = {.ranks = 2}},
    .schedules = {"1f1b", "by-hand"},
};

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) { return stagecoach::run_program(argc, argv, stagecoach::kChapter, stagecoach::train); }
