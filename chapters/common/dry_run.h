#pragma once
/// @file
/// A training step of a plan on the device `meta`: nothing is computed, and the modelled clock says what each action
/// would take.

#include "chapters/common/plan.h"
#include "chapters/common/settings.h"
#include "parallel/schedule/simulate.h"

namespace stagecoach {

/// Runs the actions of every rank of the plan's schedule, one rank after the other, and returns the seconds of each
/// computation and reduction, and last those of the update. The plan's model must have no memory, and has none
/// afterwards. Exchanges with a tensor-parallel group take what the plan says; a reduction's own time is not counted
/// here (Costs::average has it).
ActionSeconds dry_run(const Settings& settings, const Plan& plan);

}  // namespace stagecoach
