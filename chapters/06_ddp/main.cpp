/// @file
/// Chapter 6: data parallel training. Every rank has the whole model, and trains it on its shard of each batch.
///
/// The gradients of all ranks must be summed before the optimizer's step, or the models would drift apart. Strategies
/// differ in when they sum, and in what pieces: everything at once after the backward, while every rank waits for the
/// whole message; one parameter at a time, as soon as the backward has its gradient; or in buckets of many parameters,
/// which pay a link's latency less often. These three follow, each as what a rank does with one batch (`Replica`, a
/// `Strategy`, has what they share). Two older ones, in which one rank owns the weights, are in parameter_server.cpp
/// and data_parallel.cpp; replicated pipelines, each on its shard of a batch, are in pipelines.cpp.

#include "chapters/06_ddp/explain.h"
#include "chapters/06_ddp/replica.h"
#include "chapters/common/open.h"
#include "chapters/common/program.h"
#include "chapters/common/run.h"
#include "core/error.h"
#include "parallel/data_parallel/flat.h"
#include "parallel/data_parallel/reducer.h"
#include "parallel/data_parallel/step_timeline.h"

namespace stagecoach {
namespace {

/// 1. One all-reduce after the backward.
class SingleAllReduce final : public Replica {
 public:
  using Replica::Replica;

  void train_step(const MicroBatches& batch, EpochSums& sums) override {
    // This strategy has nothing to do before the backward of a micro-batch, so it passes an empty function.
    forward_backward(batch, sums, [](bool, const Tensor&) {});

    // A sum, not a mean: each image's loss already counts 1 / N, where N is the size of the whole batch.
    const std::vector<Tensor> gradients = gradients_of(parameters_);
    Tensor all = flattened(gradients);  // [all parameters]
    communicate("all_reduce", [&] { rank_.comm.all_reduce(all); });
    take_values(all, gradients);  // back into each gradient
    update();
  }
};

/// 2. One all-reduce per parameter. Autograd calls a hook each time it has added to a parameter's gradient. In the last
/// backward of a step a second thread of the rank then sums it over the ranks, while the backward continues.
class AllReducePerParameter final : public Replica {
 public:
  explicit AllReducePerParameter(const Context& context) : Replica(context), comm_thread_(rank_.comm) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      parameters_[i].second.set_gradient_hook([this, i](Tensor& parameter) {
        if (last_) {
          times_.gradient_came(i);  // for the prediction and the trace
          pending_.push_back(comm_thread_.run(
              "all_reduce", [gradient = parameter.grad()](Communicator& comm) mutable { comm.all_reduce(gradient); }));
        }
      });
    }
  }

  void train_step(const MicroBatches& batch, EpochSums& sums) override {
    forward_backward(batch, sums, [this](bool last, const Tensor&) { last_ = last; });

    std::vector<CommThread::Span> spans;
    for (const CommThread::Pending& reduction : pending_) {
      spans.push_back(reduction.wait());
    }
    pending_.clear();
    times_.end_reductions(spans);
    update();
  }

 private:
  bool last_ = false;  // true during the step's last backward: only then are the gradients complete
  std::vector<CommThread::Pending> pending_;
  CommThread comm_thread_;
};

/// 3. One all-reduce per bucket of gradients that become ready close together, as in PyTorch's DistributedDataParallel.
/// The reducer registers the hooks, and starts a bucket's all-reduce when the bucket is complete
/// (parallel/data_parallel/reducer.h).
class BucketedAllReduce final : public Replica {
 public:
  explicit BucketedAllReduce(const Context& context)
      : Replica(context),
        compression_(make_compression(settings_.data_parallel.compress)),
        reducer_(parameters_, rank_.comm,
                 {.caps = settings_.data_parallel.caps(),  // sizes of the buckets
                  .find_unused = settings_.data_parallel.find_unused,
                  .reduce = compression_.reduce}) {}

  // What compression has left out so far. It is added to the next gradients, and saved in checkpoints.
  CompressionMemory* memory() override { return compression_.memory.get(); }

  void train_step(const MicroBatches& batch, EpochSums& sums) override {
    forward_backward(batch, sums, [this](bool last, const Tensor& loss) {
      // No sums before the last backward, as under no_sync(); the loss's graph shows which parameters are unused.
      reducer_.begin(last ? Reducer::Sync::yes : Reducer::Sync::no, {&loss, 1});
    });

    reducer_.finish();
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      times_.gradient_came(i, reducer_.times().arrivals[i]);
    }
    times_.end_reductions(reducer_.times().reductions);
    update();
  }

 private:
  Compression compression_;
  Reducer reducer_;
};

std::unique_ptr<Strategy> make_strategy(const Context& context) {
  if (context.topology.pipeline) {  // --mesh with pipelines: they sum in buckets
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
      return make_parameter_server(context);
    case DataParallelMode::replicate:
      return make_data_parallel(context);  // as PyTorch's older DataParallel
  }
  throw Error("--mode: expected a mode with a strategy, got another value");
}

/// Trains this rank's replica, or its part in another strategy.
void train_rank(const Settings& settings, const Topology& topology, const TrainTest& data, Rank& rank) {
  Run run(settings, rank.comm, role_of(settings, topology, rank.index));
  if (topology.pipeline) {
    run.print_notes(topology.pipeline->notes);
  }
  const auto strategy = make_strategy({settings, topology, data, rank});
  // With --resume from a checkpoint; saved after each epoch.
  run.restore(strategy->model(), strategy->optimizer(), strategy->memory());
  strategy->broadcast_weights();                                           // all replicas start with those of rank 0
  run.predict_by([&] { return strategy->predicted_step(); });              // shown in trace.json
  MicroBatchLoader train_batches = strategy->loader(LoaderFor::training);  // this rank's shard of each batch
  MicroBatchLoader test_batches = strategy->loader(LoaderFor::testing);

  for (Epoch& epoch : run.epochs()) {
    for (const MicroBatches& batch : epoch.train(train_batches)) {
      strategy->train_step(batch, epoch.train_sums());
    }
    epoch.set_prediction(strategy->finish_epoch(train_batches.batches()));  // also checks that replicas are equal
    strategy->evaluate(epoch, test_batches);
  }
}

void train(const Settings& settings) {
  const TrainTest data = open_data(settings);
  const Topology topology = make_topology(settings, data.train);
  if (settings.run.explain) {
    return explain_modes(settings, topology, data.train);
  }
  launch(topology.world, [&](Rank& rank) { train_rank(settings, topology, data, rank); });
}

const Chapter kChapter{
    .number = 6,
    .program = "ch06_ddp",
    .title = "Chapter 6: data-parallel training, with gradients that are summed while the backward is still running.",
    .example = "ch06_ddp --data data/generated --ranks 2 --batch-size 128 --epochs 5 --out runs/ddp",
    .defaults = {.pipeline = {.chunks = 0},
                 .data_parallel = {.mode = DataParallelMode::buckets},
                 .world = {.ranks = 2}},
    .schedules = {"1f1b", "gpipe", "zb-h1", "naive", "interleaved", "foldx_aiao", "foldx_fifo", "interleaved-zb",
                  "zb-h2", "zbv", "dualpipev"},
};

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) { return stagecoach::run_program(argc, argv, stagecoach::kChapter, stagecoach::train); }
