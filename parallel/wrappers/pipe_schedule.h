#pragma once
/// @file
/// The schedule that the settings of a Pipe choose.

#include "parallel/wrappers/pipe.h"

namespace stagecoach {

/// Returns the lowered schedule of a step of a model with `layers` layers. Throws what Pipe's constructor throws.
Schedule schedule_of(const PipeSettings& settings, int layers);

}  // namespace stagecoach
