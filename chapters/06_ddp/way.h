#pragma once
/// @file
/// A way in which ranks train one model on shared batches.

#include <functional>
#include <memory>
#include <optional>

#include "chapters/06_ddp/team.h"
#include "chapters/common/micro_batch_loader.h"
#include "chapters/common/run.h"
#include "nn/optimizer.h"
#include "parallel/data_parallel/compression.h"
#include "parallel/data_parallel/step_times.h"
#include "parallel/pipeline/run_trace.h"

namespace stagecoach {

/// What a way begins with.
struct Start {
  const Settings& settings;
  const Team& team;
  const TrainTest& data;
  Rank& rank;
};

/// One rank's side of it. All ranks call the same functions together.
class Way {
 public:
  Way() = default;
  virtual ~Way() = default;
  Way(const Way&) = delete;
  Way& operator=(const Way&) = delete;

  /// What this rank holds of the training's state, to be saved and restored: nothing where another rank owns it.
  virtual Module& model() = 0;
  virtual Optimizer& optimizer() = 0;
  /// What the rank's compression keeps between steps; null where it keeps nothing.
  virtual CompressionMemory* memory() { return nullptr; }
  /// This rank's part of the batches.
  virtual MicroBatchLoader loader(LoaderFor purpose) = 0;

  /// Gives all ranks the state of rank 0, of which restored weights may be a part.
  virtual void start() = 0;
  /// Trains on a batch: forward, backward, reduction, update.
  virtual void step(const MicroBatches& batch, EpochSums& sums) = 0;
  /// The steps of an epoch are over. Throws Error where replicas' weights differ. Says what the steps should have
  /// taken.
  virtual Prediction finish_epoch(std::int64_t steps) = 0;
  /// The step to show beside the trace; nothing where no pipeline runs.
  virtual std::optional<PredictedStep> predicted_step() { return std::nullopt; }
  /// Tests the model: each rank counts correct predictions for its part of the test batches.
  virtual void evaluate(Epoch& epoch, MicroBatchLoader& batches) = 0;
};

// The ways, in the order in which the chapter teaches them; the first three stand in main.cpp.
/// One rank owns the weights, in CPU memory: it gathers gradients and sends weights out.
std::unique_ptr<Way> make_central(const Start& start);
/// One rank owns the model, and copies it to the others for every batch.
std::unique_ptr<Way> make_replicate(const Start& start);
/// Pipelines side by side, whose gradients are reduced in buckets.
std::unique_ptr<Way> make_pipelines(const Start& start);

}  // namespace stagecoach
