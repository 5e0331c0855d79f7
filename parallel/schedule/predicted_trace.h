#pragma once
/// @file
/// A simulation in Chrome's trace format, with the tracks and names of a run's trace: by itself, or beside a run.

#include <string>
#include <vector>

#include "parallel/schedule/schedule.h"
#include "parallel/schedule/simulate.h"

namespace stagecoach {

/// The simulation as a file of its own; Perfetto opens it.
std::string predicted_trace(const Schedule& schedule, const Simulation& simulation);

/// The simulation once for each of `starts`, in seconds: for trace_json, as the process "predicted" beside a run whose
/// steps began then.
std::vector<std::string> predicted_events(const Schedule& schedule, const Simulation& simulation,
                                          const std::vector<double>& starts);

}  // namespace stagecoach
