#pragma once
/// @file
/// A strategy by which ranks train one model on shared batches.

#include <memory>

#include "chapters/06_ddp/topology.h"
#include "chapters/common/micro_batch_loader.h"
#include "chapters/common/run.h"
#include "nn/optimizer.h"
#include "parallel/data_parallel/step_times.h"

namespace stagecoach {

/// What a strategy is made from.
struct Context {
  const Settings& settings;
  const Topology& topology;
  const TrainTest& data;
  Rank& rank;
};

/// One rank's side of a strategy. All ranks call the same functions together.
class Strategy {
 public:
  Strategy() = default;
  virtual ~Strategy() = default;
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;

  /// Returns this rank's part of the state that is saved and restored: a model without layers if another rank owns it.
  virtual Module& model() = 0;
  virtual Optimizer& optimizer() = 0;
  /// Returns a loader of this rank's shard of the batches. Called once for each purpose.
  virtual MicroBatchLoader loader(LoaderFor purpose) = 0;

  /// Broadcasts the weights of rank 0, which may have been restored, to all ranks.
  virtual void broadcast_weights() = 0;
  // A step.
  /// Runs forward and backward for this rank's shard of a batch.
  virtual void forward_backward(const MicroBatches& batch, EpochSums& sums) = 0;
  /// Returns when the gradients are those of the whole batch, on the ranks that update weights.
  virtual void sum_gradients() = 0;
  /// Updates the weights and clears the gradients.
  virtual void update() = 0;
  /// Called after the training of an epoch. Throws Error if the weights of replicas differ. Then broadcasts the
  /// statistics of batch norm, which do.
  virtual void sync_replicas() = 0;
  /// Returns what predicts the run, given the times that the strategy measures.
  virtual Predictor predictor() = 0;
  /// Returns the times of the parts of a step, from which a replica predicts; null: pipelines predict from their
  /// actions.
  virtual StepTimes* times() { return nullptr; }
  /// Tests the model: each rank counts correct predictions for its shard of the test batches.
  virtual void evaluate(Epoch& epoch, MicroBatchLoader& loader) = 0;
  /// --sample: prints what a model of text writes.
  virtual void print_sample() = 0;
};

// The strategies that are not in main.cpp.
/// Returns a parameter server: one rank owns the weights, in CPU memory. It gathers gradients and sends weights out.
std::unique_ptr<Strategy> make_parameter_server(const Context& context);
/// Returns several pipelines, each on its shard of the batches; their gradients are reduced in buckets.
std::unique_ptr<Strategy> make_pipelines(const Context& context);

}  // namespace stagecoach
