#pragma once
/// @file
/// Why ranks wait for each other: an epoch is replayed with the time of every single action, and one cause is added
/// after the other.

#include <cstdint>
#include <functional>

#include "parallel/schedule/simulate.h"
#include "parallel/training/step_causes.h"

namespace stagecoach {

/// Returns costs with which all ranks have equally much to do, and nothing else takes time.
Costs equal_work(const Schedule& schedule, const Costs& costs);

/// Returns what an epoch takes with these costs and the time of every single action.
using EpochReplay = std::function<ReplayedSteps(const Costs& costs, const ActionSeconds& seconds)>;

/// Returns why ranks wait in a step of an epoch of `steps` steps. `equal_idle` is the idle share with equal_work(), and
/// `exchanges` are those within the actions (see exchanges_in).
StepCauses wait_causes(const Costs& costs, double equal_idle, const ActionSeconds& computations,
                       const ActionSeconds& exchanges, std::int64_t steps, const EpochReplay& replay);

}  // namespace stagecoach
