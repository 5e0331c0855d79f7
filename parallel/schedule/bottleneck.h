#pragma once
/// @file
/// Which stage holds up a pipeline whose stages do not take equally long, and what that costs.

#include <optional>

#include "parallel/schedule/schedule.h"
#include "parallel/schedule/simulate.h"

namespace stagecoach {

struct Bottleneck {
  int rank = 0;        ///< the one that works for longest in a step
  int stage = 0;       ///< the one of its stages on which it works for longest
  double busy = 0;     ///< seconds for which that rank works in a step
  double excess = 1;   ///< that, over the mean of all ranks
  double speedup = 1;  ///< how much faster a step would be if the same work was divided equally among the ranks
};

/// None where all ranks work equally long, to a millionth. `schedule` must be lowered and legal. Throws
/// Error unless there are costs for every stage.
std::optional<Bottleneck> find_bottleneck(const Schedule& schedule, const Costs& costs);

}  // namespace stagecoach
