#pragma once
/// @file
/// Runs of the chapter programs: Run (parallel/training/run.h) with what the settings say.

#include <vector>

#include "chapters/common/settings.h"
#include "parallel/training/run.h"

namespace stagecoach {

/// Returns what the settings say about a run, for a rank with the communicator `comm`; null: there is one rank.
RunOptions run_options(const Settings& settings, const Communicator* comm = nullptr);

/// Returns the run of a rank, or of a single program on one or several devices. Prints the settings.
Run make_run(const Settings& settings, Communicator& comm, const RankRole& role);
Run make_run(const Settings& settings, Device device);
Run make_run(const Settings& settings, const std::vector<Device>& devices);

}  // namespace stagecoach
