#pragma once
/// @file
/// A way in which ranks train one model on shared batches.

#include <functional>
#include <memory>
#include <optional>

#include "chapters/06_ddp/team.h"
#include "chapters/common/epoch_log.h"
#include "chapters/common/epoch_sums.h"
#include "chapters/common/step_loader.h"
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
  virtual StepLoader loader(LoaderFor purpose) = 0;

  /// Gives all ranks the state of rank 0, of which restored weights may be a part.
  virtual void start() = 0;
  /// Trains on a batch: forward, backward, reduction, update.
  virtual void step(const Step& step, EpochSums& sums) = 0;
  /// The steps of an epoch are over. Throws Error where replicas' weights differ. Says what the steps should have
  /// taken.
  virtual Expected finish_epoch(std::int64_t steps) = 0;
  /// The step to lay beside the trace; nothing where no pipeline runs.
  virtual std::optional<PredictedStep> predicted_step() { return std::nullopt; }
  /// This rank's share in the accuracy on the test pictures; the sum over the ranks is the whole.
  virtual double accuracy(StepLoader& testing, const std::function<void()>& after_batch) = 0;
};

// The ways, in the order in which the chapter teaches them; the first three stand in main.cpp.
/// One rank owns the weights, in CPU memory: it gathers gradients and sends weights out.
std::unique_ptr<Way> make_central(const Start& start);
/// One rank owns the model, and copies it to the others for every batch.
std::unique_ptr<Way> make_replicate(const Start& start);
/// Pipelines side by side, whose gradients are reduced in buckets.
std::unique_ptr<Way> make_pipelines(const Start& start);

}  // namespace stagecoach
