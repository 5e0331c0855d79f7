// Several pipelines, each on its shard of the batches. The function is declared in strategy.h.

#include "chapters/06_ddp/strategy.h"
#include "chapters/common/open.h"
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
        topology_(context.topology),
        data_(context.data),
        mesh_(context.rank.comm, topology_.mesh, Topology::kRankOrder),
        rank_{mesh_.pipeline().rank(), mesh_.pipeline().size(), context.rank.device, mesh_.pipeline()},
        shard_(topology_.shard_of(context.rank.index)),
        stages_(make_stages(settings_.training, *topology_.pipeline, data_.train, rank_)),
        layers_(joined(stages_)),
        optimizer_(make_optimizer(settings_.training, layers_->named_parameters())),
        pipeline_(make_pipeline(*topology_.pipeline, stages_, rank_.comm)),
        reducer_(
            layers_->named_parameters(), mesh_.data(),
            {.caps = settings_.data_parallel.caps(), .reduce = make_compression(settings_.data_parallel.compress)}) {
    if (settings_.data_parallel.sync_batch_norm) {
      synchronise_batch_norm(*layers_, mesh_.data());
    }
  }

  Module& model() override { return *layers_; }
  Optimizer& optimizer() override { return *optimizer_; }

  MicroBatchLoader loader(LoaderFor purpose) override {
    const Dataset& data = purpose == LoaderFor::training ? data_.train : data_.test;
    return make_micro_batch_loader(settings_, *topology_.pipeline, data, rank_, purpose, shard_);
  }

  void broadcast_weights() override { broadcast_module(*layers_, mesh_.data()); }

  void forward_backward(const MicroBatches& batch, EpochSums& sums) override {
    reducer_.begin(Reducer::Sync::no);
    stagecoach::forward_backward(pipeline_, *topology_.pipeline, batch, sums, [this](int stage) {
      reducer_.reduce_accumulated(stages_.at(stage)->named_parameters());
    });
  }
  void sum_gradients() override { reducer_.finish(); }
  void update() override { pipeline_.update(*optimizer_); }

  void sync_replicas() override {
    require_equal_replicas(layers_->named_parameters(), mesh_.data());
    broadcast_tensors(layers_->named_buffers(), mesh_.data());
  }

  Predictor predictor() override {
    Predictor predictor = make_predictor(*topology_.pipeline, pipeline_.log(), {&mesh_.data()});
    if (settings_.data_parallel.compress != CompressionKind::none) {
      predictor.time = [time = predictor.time](std::int64_t steps) {
        Prediction prediction = time(steps);
        prediction.predicted_seconds.reset();
        prediction.predicted_idle.reset();
        return prediction;
      };
    }
    return predictor;
  }

  void evaluate(Epoch& epoch, MicroBatchLoader& loader) override {
    stagecoach::evaluate(pipeline_, *topology_.pipeline, epoch, loader);
  }

 private:
  const Settings& settings_;
  const Topology& topology_;
  const TrainTest& data_;
  Mesh mesh_;
  Rank rank_;  // this rank within its pipeline
  Shard shard_;
  std::map<int, std::shared_ptr<Sequential>> stages_;
  std::shared_ptr<Sequential> layers_;
  std::unique_ptr<Optimizer> optimizer_;
  Pipeline pipeline_;
  Reducer reducer_;
};

}  // namespace

std::unique_ptr<Strategy> make_pipelines(const Context& context) { return std::make_unique<Pipelines>(context); }

}  // namespace stagecoach
