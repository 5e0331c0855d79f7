#pragma once
/// @file
/// Finds the stage that holds up a pipeline whose stages take different times, and what it costs.

#include <optional>

#include "parallel/schedule/schedule.h"
#include "parallel/schedule/simulate.h"

namespace stagecoach {

struct StageBottleneck {
  int rank = 0;        ///< the rank that works longest in a step
  int stage = 0;       ///< the stage on which that rank works longest
  double busy = 0;     ///< seconds that the rank works in a step
  double excess = 1;   ///< `busy` over the mean of all ranks
  double speedup = 1;  ///< how much faster a step would be if the same work were divided equally among the ranks
};

/// Returns the bottleneck of `schedule`, which must be lowered and legal; nothing if all ranks work equally long, to
/// within a millionth. Throws Error unless there are costs for every stage.
std::optional<StageBottleneck> find_bottleneck(const Schedule& schedule, const Costs& costs);

}  // namespace stagecoach
