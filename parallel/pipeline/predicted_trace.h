#pragma once
/// @file
/// Writes a simulation in Chrome's trace format, with the tracks and names of a run's trace: by itself, or beside a
/// run.

#include <cstdint>
#include <string>
#include <vector>

#include "core/trace.h"
#include "parallel/schedule/schedule.h"
#include "parallel/schedule/simulate.h"

namespace stagecoach {

/// Returns the simulation as a trace file of its own, which Perfetto opens. `message_bytes` are the sizes of the
/// messages from each stage to the next one and back, [stages - 1], or empty if they are not known.
std::string predicted_trace(const Schedule& schedule, const Simulation& simulation,
                            const std::vector<double>& message_bytes = {});

/// A training step in a trace.
struct TracedStep {
  double start = 0;        ///< in seconds
  std::int64_t epoch = 1;  ///< from 1, as is the number of the step in the epoch
  std::int64_t number = 1;
  int microbatches = 0;
};
/// Returns the span of the step on a rank's track.
Trace::Event step_span(const TracedStep& step, int track, double end);

/// Adds to `trace` what `costs` predict for each of `steps`. A schedule that spans many batches has one entry in
/// `steps`, its first one. A step begins when the measured one began, or, if the prediction of the step before lasts
/// longer than that, where it ends. `ranks` are the ranks of the world that run the schedule's rows.
void add_predicted_steps(const Schedule& schedule, const Costs& costs, const std::vector<int>& ranks,
                         const std::vector<TracedStep>& steps, Trace& trace);

}  // namespace stagecoach
