#pragma once
/// @file
/// The trace of a run over several ranks, with its prediction beside it.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/trace.h"
#include "parallel/comm/communicator.h"
#include "parallel/schedule/simulate.h"

namespace stagecoach {

/// What was predicted for each traced step.
struct TracePrediction {
  int ranks = 1;  ///< those that are predicted, from rank 0 on; one of them runs the first forward (0F0) of each step
  /// Returns the predicted events, for trace_json. `starts` are the times in seconds at which each step ran that
  /// forward.
  std::function<std::vector<std::string>(const std::vector<double>& starts)> events;
};
/// Returns the prediction of a step, or of the beginning of a schedule that spans many batches.
TracePrediction prediction_of(const Schedule& schedule, const Simulation& simulation);

/// Merges the traces of all ranks into one file in Chrome's trace format, which rank 0 returns; the other ranks return
/// "". There is one track per rank and per link direction. `predicted`, if given, is shown beside each traced step as
/// the process "predicted"; with parallel pipelines, for the first one. All ranks call it together.
std::string gather_trace(Communicator& comm, const Trace& mine, const std::optional<TracePrediction>& predicted);

}  // namespace stagecoach
