#pragma once
/// @file
/// The trace of a run over several ranks, with its prediction beside it.

#include <optional>
#include <string>

#include "core/trace.h"
#include "parallel/comm/communicator.h"
#include "parallel/schedule/simulate.h"

namespace stagecoach {

/// A step, or the beginning of a schedule that goes over many batches, as `simulation` predicts it.
struct PredictedStep {
  Schedule schedule;
  Simulation simulation;
};

/// Brings the traces of all ranks together on rank 0, as one file of Chrome's trace format; the others get "". The
/// tracks are those of the ranks and of the link directions between them. `predicted`, if there is one, is laid beside
/// each traced step, from the start of its first forward: the process "predicted" of the file. Of pipelines side by
/// side that is for the first. All ranks call it together.
std::string gather_trace(Communicator& comm, const Trace& mine, const std::optional<PredictedStep>& predicted);

}  // namespace stagecoach
