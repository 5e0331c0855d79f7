#pragma once
/// @file
/// A training step of a plan on the device `meta`: nothing is computed, and the modelled clock says what each action
/// would take.

#include "chapters/common/plan.h"
#include "chapters/common/settings.h"
#include "parallel/schedule/ledger.h"
#include "parallel/schedule/simulate.h"

namespace stagecoach {

struct PlannedRun {
  Simulation simulation;
  double further_seconds = 0;  ///< of each further step, which begins while this one ends; 0 if updates are listed
  std::vector<double> memory_bytes;  ///< per rank: of its tensors, at most, as a run counts them; empty if not known
};

/// Simulates `schedule`, which is the plan's or one for other micro-batches, by the costs of its stages. On the
/// modelled clock every action takes what it would take on the modelled device instead, unless a file says what layers
/// cost: then the model must have no memory, and has none afterwards. Exchanges with a tensor-parallel group take what
/// the plan says, and reductions what the costs say. `ledger` says which version of the weights each action of
/// `schedule` uses; null: the newest.
PlannedRun simulate_plan(const Plan& plan, const Schedule& schedule, const Costs& costs,
                         const Ledger* ledger = nullptr);

}  // namespace stagecoach
