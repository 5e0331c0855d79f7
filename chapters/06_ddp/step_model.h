#pragma once
/// @file
/// What the arithmetic of a step needs to know of a training with these settings.

#include "chapters/06_ddp/topology.h"
#include "parallel/data_parallel/step_timeline.h"

namespace stagecoach {

/// A step of `topology` with the model that has these parameters, in the order of costs.arrivals.
StepModel step_of(const Settings& settings, const Topology& topology, const NamedTensors& parameters,
                  const StepCosts& costs);

}  // namespace stagecoach
