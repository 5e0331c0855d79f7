#pragma once
/// @file
/// A training step of a plan on the device `meta`: nothing is computed, and the modelled clock says what each action
/// would take.

#include "chapters/common/plan.h"
#include "chapters/common/settings.h"
#include "parallel/schedule/simulate.h"

namespace stagecoach {

/// Runs the actions of every rank of `schedule`, which is the plan's or one for other micro-batches, one rank after the
/// other. Returns the seconds of each action that is not a message; last those of the update, if the schedule is of a
/// single step, which does not list it. The plan's model must have no memory, and has none
/// afterwards. Exchanges with a tensor-parallel group take what the plan says; a reduction's own time is not counted
/// here (Costs::average has it).
ActionSeconds dry_run(const Settings& settings, const Plan& plan, const Schedule& schedule);

}  // namespace stagecoach
