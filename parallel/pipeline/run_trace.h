#pragma once
/// @file
/// The trace of a run over several ranks, with its prediction beside it.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/trace.h"
#include "parallel/comm/communicator.h"
#include "parallel/pipeline/predicted_trace.h"
#include "parallel/schedule/simulate.h"

namespace stagecoach {

/// What is predicted for the traced steps.
struct TracePrediction {
  std::vector<std::vector<int>> pipelines;  ///< ranks that are predicted together; one of them runs 0F0 of each step
  /// Adds the prediction of `steps`, which began with 0F0, for the ranks of a pipeline.
  std::function<void(const std::vector<int>& ranks, const std::vector<TracedStep>& steps, Trace& trace)> add_steps;
};
/// Returns the prediction of each step, or of a schedule that spans many batches, for `pipelines` that run it:
/// [pipelines][ranks of the schedule], as ranks of the world.
TracePrediction prediction_of(const Schedule& schedule, const Costs& costs, std::vector<std::vector<int>> pipelines);

/// Merges the traces of all ranks into one file in Chrome's trace format, which rank 0 returns; the other ranks return
/// "". There is one track per rank and per link direction. `predicted`, if given, is shown beside the traced steps as
/// the process "predicted". `first` has the epoch and the number of the first of these. All ranks call it together.
std::string gather_trace(Communicator& comm, const Trace& mine, const TracedStep& first,
                         const std::optional<TracePrediction>& predicted);

}  // namespace stagecoach
