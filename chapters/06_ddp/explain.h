#pragma once
/// @file
/// The prediction of a step before it runs.

#include <functional>
#include <memory>

#include "chapters/06_ddp/strategy.h"

namespace stagecoach {

/// Prints what each rank does, a timeline per mode with the reductions on a separate track, the cost of reductions as a
/// ring, as a tree and rank by rank, and the best bucket size: in units, or with --profile in the times that the
/// strategies of `make`, each on one rank alone, take on this machine. With --out, also writes schedule.csv,
/// prediction.json and timelines.svg.
void explain_modes(const Settings& settings, const Topology& topology, const TrainTest& data,
                   const std::function<std::unique_ptr<Strategy>(const Context&)>& make);

}  // namespace stagecoach
