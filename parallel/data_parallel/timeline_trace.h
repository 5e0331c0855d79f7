#pragma once
/// @file
/// Writes the timeline of a data-parallel step in Chrome's trace format, beside the trace of a run.

#include <vector>

#include "core/trace.h"
#include "parallel/data_parallel/step_timeline.h"
#include "parallel/pipeline/predicted_trace.h"

namespace stagecoach {

/// Adds the timeline to `trace` for each of `steps`, whose starts are those of their first forwards (or where the
/// prediction of the step before ends, if that is later). Each of `ranks` has a track for its work and its waits, and
/// one beside it for communication.
void add_predicted_steps(const Timeline& timeline, const std::vector<int>& ranks, const std::vector<TracedStep>& steps,
                         Trace& trace);

}  // namespace stagecoach
