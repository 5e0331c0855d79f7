#pragma once
/// @file
/// Writes the timeline of a data-parallel step in Chrome's trace format, beside the trace of a run.

#include <string>
#include <vector>

#include "parallel/data_parallel/step_timeline.h"

namespace stagecoach {

/// Returns the timeline once for each of `starts`, in seconds: the times at which the steps ran their first forward.
/// trace_json shows it as the process "predicted". Each rank has a track for its work and its waits, and one beside it
/// for communication.
std::vector<std::string> predicted_events(const Timeline& timeline, int ranks, const std::vector<double>& starts);

}  // namespace stagecoach
