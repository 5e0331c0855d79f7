#pragma once
/// @file
/// Writes a simulation in Chrome's trace format, with the tracks and names of a run's trace: by itself, or beside a
/// run.

#include <string>
#include <vector>

#include "parallel/schedule/schedule.h"
#include "parallel/schedule/simulate.h"

namespace stagecoach {

/// Returns the simulation as a trace file of its own, which Perfetto opens.
std::string predicted_trace(const Schedule& schedule, const Simulation& simulation);

/// Returns the simulation once for each of `starts`, in seconds. trace_json shows it as the process "predicted" beside
/// a run whose steps began at these times.
std::vector<std::string> predicted_events(const Schedule& schedule, const Simulation& simulation,
                                          const std::vector<double>& starts);

}  // namespace stagecoach
