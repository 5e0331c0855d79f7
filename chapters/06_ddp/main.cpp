/// @file
/// Chapter 6: data parallel training. Every rank has the whole model, and trains it on its part of each batch.
///
/// The ranks' gradients must then be summed before the optimizer's step, or the models would drift apart. When, and in
/// what pieces, makes the difference: all at once behind the backward, so that the ranks wait for the whole message;
/// one parameter after the other, as soon as the backward has its gradient; or in buckets of many parameters, which pay
/// a link's latency less often. The three ways stand below, each as what it does with one batch. Two older ones, in
/// which one rank owns the weights, are in central.cpp and replicate.cpp; pipelines side by side in pipelines.cpp.

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

/// 1. One reduction after the backward.
class Single final : public Replica {
 public:
  using Replica::Replica;

  void step(const MicroBatches& batch, EpochSums& sums) override {
    run_shard(batch, sums, [](bool, const Tensor&) {});

    const std::vector<Tensor> gradients = gradients_of(parameters_);
    Tensor all = flattened(gradients);  // [all parameters]
    communicate("all_reduce", [&] { rank_.comm.all_reduce(all); });
    take_values(all, gradients);
    update();
  }
};

/// 2. One reduction a parameter. Autograd calls a hook when it has a parameter's gradient; the rank's second thread
/// sums it over the ranks while the backward goes on.
class ByParameter final : public Replica {
 public:
  explicit ByParameter(const Start& start) : Replica(start), comm_thread_(rank_.comm) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      parameters_[i].second.on_gradient([this, i](Tensor& parameter) {
        if (last_) {
          times_.gradient_came(i);
          pending_.push_back(comm_thread_.run(
              "all_reduce", [sum = parameter.grad()](Communicator& comm) mutable { comm.all_reduce(sum); }));
        }
      });
    }
  }

  void step(const MicroBatches& batch, EpochSums& sums) override {
    run_shard(batch, sums, [this](bool last, const Tensor&) { last_ = last; });

    std::vector<CommThread::Span> spans;
    for (const CommThread::Pending& reduction : pending_) {
      spans.push_back(reduction.wait());
    }
    pending_.clear();
    times_.end_reductions(spans);
    update();
  }

 private:
  bool last_ = false;  // the step's last backward: its gradients are whole
  std::vector<CommThread::Pending> pending_;
  CommThread comm_thread_;
};

/// 3. Buckets: gradients are reduced together that come one after the other (parallel/data_parallel/reducer.h).
class InBuckets final : public Replica {
 public:
  explicit InBuckets(const Start& start)
      : Replica(start),
        compression_(make_compression(settings_.data_parallel.compress)),
        reducer_(parameters_, rank_.comm,
                 {.caps = {settings_.data_parallel.first_bucket_size, settings_.data_parallel.bucket_size},
                  .find_unused = settings_.data_parallel.find_unused,
                  .reduce = compression_.reduce}) {}

  CompressionMemory* memory() override { return compression_.memory.get(); }

  void step(const MicroBatches& batch, EpochSums& sums) override {
    run_shard(batch, sums, [this](bool last, const Tensor& loss) {
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

std::unique_ptr<Way> open_way(const Start& start) {
  if (start.team.pipeline) {
    return make_pipelines(start);
  }
  const std::string& mode = start.settings.data_parallel.mode;
  if (mode == "single") {
    return std::make_unique<Single>(start);
  }
  if (mode == "parameter") {
    return std::make_unique<ByParameter>(start);
  }
  if (mode == "buckets") {
    return std::make_unique<InBuckets>(start);
  }
  if (mode == "central") {
    return make_central(start);
  }
  STAGECOACH_CHECK(mode == "replicate", "mode {}: no program for it", mode);
  return make_replicate(start);
}

/// What each rank does.
void train_rank(const Settings& settings, const Team& team, const TrainTest& data, Rank& rank) {
  const bool owned = settings.data_parallel.mode == "central" ||
                     settings.data_parallel.mode == "replicate";  // by rank 0; the others save nothing
  const std::optional<int> replica_of = owned ? std::nullopt : std::optional(team.part_of(rank.index));
  Run run(settings, rank.comm,
          {.layers = team.layers,
           .stages = team.stages,
           .replica_of = replica_of,
           .shard = team.shard_of(rank.index).index,
           .splits_losses = true});
  if (team.pipeline) {
    run.print_notes(team.pipeline->notes);
  }
  const auto way = open_way({settings, team, data, rank});
  run.restore(way->model(), way->optimizer(), way->memory());
  way->start();
  run.predict_by([&] { return way->predicted_step(); });
  MicroBatchLoader train_batches = way->loader(LoaderFor::training);
  MicroBatchLoader test_batches = way->loader(LoaderFor::testing);

  for (Epoch& epoch : run.epochs()) {
    for (const MicroBatches& batch : epoch.train(train_batches)) {
      way->step(batch, epoch.train_sums());
    }
    epoch.set_prediction(way->finish_epoch(train_batches.batches()));
    way->evaluate(epoch, test_batches);
  }
}

void train(const Settings& settings) {
  const TrainTest data = open_data(settings);
  const Team team = make_team(settings, data.train);
  if (settings.run.explain) {
    return explain_ways(settings, team, data.train);
  }
  launch(team.world, [&](Rank& rank) { train_rank(settings, team, data, rank); });
}

const Chapter kChapter{
    .program = "ch06_ddp",
    .title = "Chapter 6: data parallel training, with gradients that are summed while the backward goes on.",
    .example = "ch06_ddp --data data/generated --ranks 2 --batch-size 128 --epochs 5 --out runs/ddp",
    .flags = {"microbatches", "ranks",       "mode",
              "mesh",         "bucket-size", "first-bucket-size",
              "find-unused",  "compress",    "sync-batch-norm",
              "schedule",     "chunks",      "group",
              "split",        "balance",     "recompute",
              "receives",     "lowered",     "clock",
              "link",         "transport",   "reduce",
              "timeout",      "explain"},
    .defaults = {.pipeline = {.chunks = 0}, .data_parallel = {.mode = "buckets"}, .world = {.ranks = 2}},
    .schedules = {"1f1b", "gpipe", "zb-h1", "naive", "interleaved", "foldx_aiao", "foldx_fifo", "interleaved-zb",
                  "zb-h2", "zbv", "dualpipev"},
    .modes = mode_names(),
};

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) { return stagecoach::run_program(argc, argv, stagecoach::kChapter, stagecoach::train); }
