/// @file
/// Chapter 6: data parallel training. Every rank has the whole model, and trains it on its shard of each batch.
///
/// The gradients of all ranks must be summed before the optimizer's step, or the models would drift apart. Strategies
/// differ in when they sum, and in what pieces: everything at once after the backward, while every rank waits for the
/// whole message; one parameter at a time, as soon as the backward has its gradient; or in buckets of many parameters,
/// which pay a link's latency less often. These three follow, each as what a rank does with one batch. `Replica`, a
/// `Strategy`, has what they share: its forward_backward adds up the gradients of this rank's images. An older
/// strategy, in which one rank owns the weights, is in parameter_server.cpp; replicated pipelines, each on its shard of
/// a batch, are in pipelines.cpp.

#include <span>

#include "chapters/06_ddp/explain.h"
#include "chapters/06_ddp/replica.h"
#include "chapters/common/bug_hooks.h"
#include "chapters/common/open.h"
#include "chapters/common/program.h"
#include "chapters/common/run.h"
#include "core/base/error.h"
#include "parallel/data_parallel/flat.h"
#include "parallel/data_parallel/reducer.h"
#include "parallel/data_parallel/step_timeline.h"

namespace stagecoach {
namespace {

/// 1. --mode single: one all-reduce after the backward.
class SingleAllReduce final : public Replica {
 public:
  using Replica::Replica;

  void train_step(const MicroBatches& batch, EpochSums& sums) override {
    forward_backward(batch, sums);

    // A sum, not a mean: each image's loss already counts 1 / N, where N is the size of the whole batch on all ranks.
    const std::vector<Tensor> gradients = gradients_of(parameters_);
    Tensor all = flattened(gradients);                               // [all parameters]
    communicate("all_reduce", [&] { rank_.comm.all_reduce(all); });  // waits, and records the time
    unflatten_into(all, gradients);                                  // copies the sums back into each gradient
    update();                                                        // the optimizer's step, then zero_grad
  }
};

/// 2. --mode parameter: one all-reduce per parameter. In every backward autograd calls a hook once per parameter, when
/// its gradient has its last contribution. In the last backward of a step a second thread of the rank then sums it over
/// the ranks, while the backward continues. Collectives must come in the same order on all ranks; they do, as all ranks
/// run the same graph. (A parameter that only some ranks use would break that order, and the ranks would fail or wait
/// until --timeout. The reducer of 3 can find such parameters.)
class AllReducePerParameter final : public Replica {
 public:
  explicit AllReducePerParameter(const Context& context) : Replica(context), comm_thread_(rank_.comm) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      auto& [name, parameter] = parameters_[i];
      parameter.set_gradient_hook([this, i](Tensor& ready) {
        if (is_last_backward_) {
          times_.gradient_came(i);  // for the predictions
          pending_.push_back(comm_thread_.submit(
              "all_reduce", [gradient = ready.grad()](Communicator& comm) mutable { comm.all_reduce(gradient); }));
        }
      });
    }
  }

  void train_step(const MicroBatches& batch, EpochSums& sums) override {
    // The function is called before the backward of each micro-batch.
    forward_backward(batch, sums, [this](bool is_last, const Tensor& /*loss*/) { is_last_backward_ = is_last; });

    std::vector<CommThread::Span> spans;  // when each all-reduce began and ended
    for (const CommThread::Pending& reduction : pending_) {
      spans.push_back(reduction.wait());
    }
    pending_.clear();
    times_.end_reductions(spans);
    update();
  }

 private:
  bool is_last_backward_ = false;  // of the step: only then are the gradients complete
  std::vector<CommThread::Pending> pending_;
  CommThread comm_thread_;
};

/// 3. --mode buckets: one all-reduce per bucket of gradients that become ready close together, as in PyTorch's
/// DistributedDataParallel. The reducer registers the hooks, and starts a bucket's all-reduce when the bucket is
/// complete (parallel/data_parallel/reducer.h).
class BucketedAllReduce final : public Replica {
 public:
  explicit BucketedAllReduce(const Context& context)
      : Replica(context),
        reducer_(parameters_, rank_.comm,
                 {.caps = settings_.data_parallel.caps(),              // bytes at which a bucket is closed
                  .find_unused = settings_.data_parallel.find_unused,  // in each graph: parameters without a gradient
                  .reduce = with_bug(make_compression(settings_.data_parallel.compress), settings_.training.inject,
                                     rank_.index)}) {}

  void train_step(const MicroBatches& batch, EpochSums& sums) override {
    forward_backward(batch, sums, [this](bool is_last, const Tensor& loss) {
      // No sums before the last backward, as under no_sync(); the loss's graph shows which parameters are unused.
      reducer_.begin(is_last ? Reducer::Sync::yes : Reducer::Sync::no, std::span(&loss, 1));
    });

    reducer_.finish();
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      times_.gradient_came(i, reducer_.times().arrivals[i]);
    }
    times_.end_reductions(reducer_.times().reductions);
    update();
  }

 private:
  Reducer reducer_;
};

/// Returns this rank's side of the strategy of --mode.
std::unique_ptr<Strategy> make_strategy(const Context& context) {
  if (context.topology.pipeline) {  // --mesh with pipelines, such as dp=2,pp=2; --mode must be buckets
    return make_pipelines(context);
  }
  switch (*context.settings.data_parallel.mode) {
    case DataParallelMode::single:
      return std::make_unique<SingleAllReduce>(context);
    case DataParallelMode::parameter:
      return std::make_unique<AllReducePerParameter>(context);
    case DataParallelMode::buckets:
      return std::make_unique<BucketedAllReduce>(context);
    case DataParallelMode::central:
      return make_parameter_server(context);  // rank 0 owns the weights: it gets gradients, and sends weights out
  }
  throw Error("--mode: expected a mode with a strategy, got another value");
}

/// Trains this rank's replica, or its part in another strategy.
void train_rank(const Settings& settings, const Topology& topology, const TrainTest& data, Rank& rank) {
  // Prints, measures and saves; on SIGINT all ranks stop after the same step. The role says which weights a rank saves.
  Run run(settings, rank.comm, role_of(settings, topology, rank.index));
  if (topology.pipeline) {
    run.print_notes(topology.pipeline->notes);  // such as what the order of its table means for memory
  }
  const auto strategy = make_strategy({settings, topology, data, rank});
  // With --resume loads both; epochs() saves them to --out after each epoch.
  run.set_up_checkpoints(data, strategy->model(), strategy->optimizer());
  strategy->broadcast_weights();  // from rank 0, or from the first pipeline to the others
  // For metrics.jsonl and trace.json: how long the steps should have taken, given the measured times of all ranks.
  run.predict_with(strategy->predictor());
  // This rank's shard of each batch.
  MicroBatchLoader train_loader = strategy->loader(LoaderFor::training);
  MicroBatchLoader test_loader = strategy->loader(LoaderFor::testing);

  for (Epoch& epoch : run.epochs()) {
    for (const MicroBatches& batch : epoch.training_batches(train_loader)) {
      strategy->train_step(batch, epoch.train_sums());
    }
    strategy->sync_replicas();  // throws unless their weights are equal; copies rank 0's batch norm statistics
    strategy->evaluate(epoch, test_loader);  // forwards of this rank's shard; then all ranks' counts are added
  }
}

void train(const Settings& settings) {
  const TrainTest data = open_data(settings);
  const Topology topology = make_topology(settings, data.train);
  if (settings.run.explain) {
    return explain_modes(settings, topology, data.train);  // prints a timeline per mode, and does not train
  }
  // Runs train_rank once per rank, each on a thread of this process; under mpirun, for the one rank of this process.
  launch(topology.world, [&](Rank& rank) { train_rank(settings, topology, data, rank); });
}

const Chapter kChapter{
    .number = 6,
    .program = "ch06_ddp",
    .title = "Chapter 6: data-parallel training, with gradients that are summed while the backward is still running.",
    .example = "ch06_ddp --data data/generated --ranks 2 --batch-size 128 --epochs 5 --out runs/ddp",
    // 0 chunks become 2 when flags are read, or 1 for a schedule that has one stage per rank.
    .defaults = {.pipeline = {.chunks = 0},
                 .data_parallel = {.mode = DataParallelMode::buckets},
                 .world = {.ranks = 2}},
    .schedules = mesh_schedules(),  // for --mesh with pipelines
};

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) { return stagecoach::run_program(argc, argv, stagecoach::kChapter, stagecoach::train); }
