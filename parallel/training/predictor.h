#pragma once
/// @file
/// What a run asks for its predictions. Chapters make one from their plan and their measurements (make_predictor).

#include <cstdint>
#include <functional>
#include <optional>

#include "parallel/pipeline/run_trace.h"
#include "parallel/training/epoch_log.h"

namespace stagecoach {

/// The functions that predict a run. Each may be empty. All ranks call the same functions together.
struct Predictor {
  /// Called before an epoch's first step: drops what was measured before.
  std::function<void()> start_epoch = {};
  /// Called after an epoch's last step: returns how long its `steps` steps should have taken, for metrics.jsonl.
  std::function<Prediction(std::int64_t steps)> time = {};
  /// Called once, after the training of this run's first epoch, or when that is stopped: returns the timeline to show
  /// in trace.json beside the measured one; nothing if it cannot be predicted.
  std::function<std::optional<TracePrediction>()> timeline = {};
};

}  // namespace stagecoach
