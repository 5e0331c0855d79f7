#pragma once
/// @file
/// Says where the time of a step goes, and finds the stage that holds up a pipeline whose stages take different times.

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

/// Returns the costs of the same work, divided equally among the ranks of `schedule`.
Costs balanced(const Schedule& schedule, Costs costs);
/// Returns the costs without the time of messages.
Costs without_messages(Costs costs);
/// Returns the costs without the time of reductions, and of the norm of all gradients.
Costs without_reductions(Costs costs);

/// The parts of a step, in seconds; they add up to Simulation::seconds. Each but the first is what its cause adds when
/// the causes are added one after the other, in this order.
struct SimulatedParts {
  double ideal = 0;      ///< a rank's computations, as the mean over the ranks
  double bubble = 0;     ///< ranks wait for each other, although all have equally much to do
  double imbalance = 0;  ///< some ranks or stages have more to do than others
  double messages = 0;   ///< messages and reductions take time
  double update = 0;     ///< the update of the weights
};

/// Returns the parts of a step of `schedule`, which must be lowered and legal. Throws Error unless there are costs for
/// every stage.
SimulatedParts simulated_parts(const Schedule& schedule, const Costs& costs);

}  // namespace stagecoach
