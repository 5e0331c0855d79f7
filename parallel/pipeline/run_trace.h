#pragma once
/// @file
/// The trace of a run over several ranks, with its prediction beside it.

#include <optional>
#include <string>

#include "core/trace.h"
#include "parallel/comm/communicator.h"
#include "parallel/schedule/simulate.h"

namespace stagecoach {

/// The predicted course of a step, or of the beginning of a schedule that spans many batches.
struct PredictedStep {
  Schedule schedule;
  Simulation simulation;
};

/// Merges the traces of all ranks into one file in Chrome's trace format, which rank 0 returns; the other ranks return
/// "". There is one track per rank and per link direction. `predicted`, if given, is shown beside each traced step,
/// from the start of the step's first forward, as the process "predicted"; with parallel pipelines, for the first one.
/// All ranks call it together.
std::string gather_trace(Communicator& comm, const Trace& mine, const std::optional<PredictedStep>& predicted);

}  // namespace stagecoach
