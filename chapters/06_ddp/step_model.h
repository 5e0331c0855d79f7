#pragma once
/// @file
/// The StepModel of a training with these settings.

#include "chapters/06_ddp/topology.h"
#include "parallel/data_parallel/step_timeline.h"

namespace stagecoach {

/// Returns the model of a step on `topology`, with these parameters in the order of costs.arrivals.
StepModel step_of(const Settings& settings, const Topology& topology, const NamedTensors& parameters,
                  const StepCosts& costs);

}  // namespace stagecoach
