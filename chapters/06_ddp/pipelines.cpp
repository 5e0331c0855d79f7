// Several pipelines, each on its shard of the batches. The function is declared in strategy.h.

#include <utility>

#include "chapters/06_ddp/strategy.h"
#include "chapters/common/pipeline_steps.h"
#include "chapters/common/prediction.h"
#include "parallel/data_parallel/average_gradients.h"
#include "parallel/data_parallel/reducer.h"
#include "parallel/data_parallel/same_model.h"
#include "parallel/data_parallel/sync_batch_norm.h"

namespace stagecoach {
namespace {

/// A rank of a mesh: its pipeline is a row, and the ranks that hold the same stage are a column. Gradients are reduced
/// over the column, stage by stage, at the point that the schedule gives: after the stage's last weight gradient, while
/// other stages and other ranks of the row may still compute theirs.
class Pipelines final : public Strategy {
 public:
  explicit Pipelines(const Context& context)
      : settings_(context.settings),
        replicas_(context.settings.data_parallel),
        rank_(context.rank.index),
        plan_(*context.topology.pipeline),
        mesh_(context.rank.comm, context.topology.mesh, Topology::kRankOrder),
        worker_(plan_, context.data,
                {mesh_.pipeline().rank(), mesh_.pipeline().size(), context.rank.device, mesh_.pipeline()},
                {.shard = context.topology.shard_of(context.rank.index)}),
        reducer_(mesh_.data().size() > 1 ? worker_.layers->named_parameters() : NamedTensors{}, mesh_.data(),
                 {.caps = replicas_.caps(), .reduce = make_compression(replicas_.compress)}) {
    if (replicas_.sync_batch_norm) {
      synchronise_batch_norm(*worker_.layers, mesh_.data());
    }
  }

  Module& model() override { return *worker_.layers; }
  Optimizer& optimizer() override { return *worker_.optimizer; }
  MicroBatchLoader loader(LoaderFor purpose) override {
    return std::move(purpose == LoaderFor::training ? worker_.train_loader : worker_.test_loader);
  }

  void broadcast_weights() override { broadcast_module(*worker_.layers, mesh_.data()); }

  void forward_backward(const MicroBatches& batch, EpochSums& sums) override {
    reducer_.begin(Reducer::Sync::no);
    stagecoach::forward_backward(worker_.pipeline, plan_, batch, sums, [this](int stage) {
      reducer_.reduce_accumulated(worker_.stages.at(stage)->named_parameters());
    });
  }
  void sum_gradients() override { reducer_.finish(); }
  void update() override { worker_.pipeline.update(*worker_.optimizer); }

  void sync_replicas() override {
    require_equal_replicas(worker_.layers->named_parameters(), mesh_.data());
    broadcast_tensors(worker_.layers->named_buffers(), mesh_.data());
  }

  Predictor predictor() override {
    Predictor predictor = make_predictor(plan_, worker_.pipeline.log(), {&mesh_.data()});
    if (replicas_.compress != CompressionKind::none) {
      predictor.time = [time = predictor.time](std::int64_t steps) {
        Prediction prediction = time(steps);
        prediction.predicted_seconds.reset();
        prediction.predicted_idle.reset();
        prediction.causes.reset();
        return prediction;
      };
    }
    return predictor;
  }

  void evaluate(Epoch& epoch, MicroBatchLoader& loader) override {
    stagecoach::evaluate(worker_.pipeline, plan_, epoch, loader);
  }
  void print_sample() override {
    stagecoach::print_sample(settings_, worker_.pipeline, plan_.schedule, mesh_.pipeline(), rank_ == 0);
  }

 private:
  const Settings& settings_;
  const ReplicaSettings& replicas_;
  int rank_;
  const Plan& plan_;
  Mesh mesh_;
  PipelineWorker worker_;  // of this rank within its pipeline
  Reducer reducer_;
};

}  // namespace

std::unique_ptr<Strategy> make_pipelines(const Context& context) { return std::make_unique<Pipelines>(context); }

}  // namespace stagecoach
