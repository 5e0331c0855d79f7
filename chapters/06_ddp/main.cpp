/// @file
/// Chapter 6: data parallel training. Every rank has the whole model, and trains it on its shard of each batch.
///
/// The gradients of all ranks must be summed before the optimizer's step, or the models would drift apart. Strategies
/// differ in when they sum, and in what pieces. Three follow; `Replica` has what they share. An older one, in which one
/// rank owns the weights, is in parameter_server.cpp; replicated pipelines, each on its shard, are in pipelines.cpp.

#include "chapters/06_ddp/explain.h"
#include "chapters/06_ddp/replica.h"
#include "chapters/common/open.h"
#include "chapters/common/program.h"
#include "parallel/data_parallel/flat.h"

namespace stagecoach {
namespace {

/// 1. --mode single: one all-reduce after the backward, while every rank waits for the whole message.
class SingleAllReduce final : public Replica {
 public:
  using Replica::Replica;
  void sum_gradients() override {
    // A sum, not a mean: each image's loss already counts 1 / N, where N is the size of the whole batch on all ranks.
    const std::vector<Tensor> gradients = gradients_of(parameters_);
    Tensor all = flattened(gradients);  // [all parameters]
    all_reduce(all);
    unflatten_into(all, gradients);  // copies the sums back into each gradient
  }
};

/// 2. --mode parameter: one all-reduce per parameter. Autograd calls a hook once per parameter, when its gradient is
/// complete; a second thread of the rank then sums it over the ranks, while the backward continues. Collectives must
/// come in the same order on all ranks; they do, as all ranks run the same graph. (A parameter that only some ranks use
/// would break that order, and the ranks would fail or wait until --timeout. The reducer of 3 can find such
/// parameters.)
class AllReducePerParameter final : public Replica {
 public:
  explicit AllReducePerParameter(const Context& context) : Replica(context) {
    on_complete_gradient([this](const Tensor& gradient) { start_all_reduce(gradient); });
  }
  void sum_gradients() override { wait_for_all_reduces(); }
};

/// 3. --mode buckets: one all-reduce per bucket of gradients that become ready close together, which pays a link's
/// latency less often, as in PyTorch's DistributedDataParallel. The reducer registers the hooks, and starts a bucket's
/// all-reduce when the bucket is complete (parallel/data_parallel/reducer.h).
class BucketedAllReduce final : public Replica {
 public:
  explicit BucketedAllReduce(const Context& context)
      : Replica(context), reducer_(parameters_, rank_.comm, reducer_settings()) {}  // --bucket-size, --compress, …
  void before_backward(bool is_last, const Tensor& loss) override {
    // No sums before a step's last backward, as under no_sync(); the loss's graph shows which parameters are unused.
    reducer_.begin(is_last ? Reducer::Sync::yes : Reducer::Sync::no, {&loss, 1});
  }
  void sum_gradients() override { wait_for(reducer_); }

 private:
  Reducer reducer_;
};

/// Returns this rank's side of the strategy of --mode.
std::unique_ptr<Strategy> make_strategy(const Context& context) {
  switch (*context.settings.data_parallel.mode) {
    case DataParallelMode::single:
      return std::make_unique<SingleAllReduce>(context);
    case DataParallelMode::parameter:
      return std::make_unique<AllReducePerParameter>(context);
    case DataParallelMode::central:
      return make_parameter_server(context);
    default:  // with --mesh dp=2,pp=2, the replicas are pipelines
      return context.topology.pipeline ? make_pipelines(context) : std::make_unique<BucketedAllReduce>(context);
  }
}

void train_rank(const Settings& settings, const Topology& topology, const TrainTest& data, Rank& rank) {
  Run run = make_run(settings, rank.comm, role_of(settings, topology, rank.index));  // prints, measures, saves
  run.print_notes(topology.notes);
  const auto strategy = make_strategy({settings, topology, data, rank});
  run.set_up_checkpoints(data, strategy->model(), strategy->optimizer());  // --resume: loads both
  strategy->broadcast_weights();            // from rank 0, or from the first pipeline to the others
  run.predict_with(strategy->predictor());  // for metrics.jsonl and trace.json, from the measured times of all ranks
  MicroBatchLoader train_loader = strategy->loader(LoaderFor::training);  // this rank's shard of each batch
  MicroBatchLoader test_loader = strategy->loader(LoaderFor::testing);
  for (Epoch& epoch : run.epochs()) {
    for (const MicroBatches& batch : epoch.training_batches(train_loader)) {
      strategy->forward_backward(batch, epoch.train_sums());  // adds up the gradients of this rank's images
      strategy->sum_gradients();                              // over the ranks, or waits for the sums
      strategy->update();                                     // the optimizer's step, then zero_grad
    }
    strategy->sync_replicas();  // throws unless their weights are equal; copies rank 0's batch norm statistics
    strategy->evaluate(epoch, test_loader);  // forwards of this rank's shard; then all ranks' counts are added
  }
  strategy->print_sample();  // --sample: what a model of text writes
}

void train(const Settings& settings) {
  const TrainTest data = open_data(settings);
  const Topology topology = make_topology(settings, data.train);
  if (settings.run.explain) {
    return explain_modes(settings, topology, data, make_strategy);  // prints a timeline per mode, and does not train
  }
  // Runs train_rank once per rank, each on a thread of this process; under mpirun, for the one rank of this process.
  launch_ranks(topology.world, settings.training.inject, [&](Rank& r) { train_rank(settings, topology, data, r); });
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
