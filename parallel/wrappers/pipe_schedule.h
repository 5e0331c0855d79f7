#pragma once
/// @file
/// The schedule that the settings of a Pipe choose.

#include "parallel/wrappers/pipe.h"

namespace stagecoach {

/// Returns the lowered schedule of a step of a model with `layers` layers. Throws what Pipe's constructor throws.
Schedule schedule_of(const PipeSettings& settings, int layers);

/// Returns the idle share of a step of `schedule`, lowered, if all stages take equally long.
double ideal_idle(const Schedule& schedule, const PipeSettings& settings);

}  // namespace stagecoach
