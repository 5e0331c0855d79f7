#include "chapters/common/wait_causes.h"

#include "chapters/common/prediction.h"
#include "parallel/schedule/bottleneck.h"

namespace stagecoach {

Costs equal_work(const Schedule& schedule, const Costs& costs) {
  Costs equal = balanced(schedule, without_reductions(without_messages(costs)));
  equal.after.clear();
  return equal;
}

StepCauses wait_causes(const Costs& costs, double equal_idle, const ActionSeconds& computations,
                       const ActionSeconds& exchanges, std::int64_t steps, const EpochReplay& replay) {
  const Costs without_sums = without_reductions(costs);
  const ActionSeconds seconds = with_exchanges(computations, exchanges);
  const ReplayedSteps computing = replay(without_messages(without_sums), computations);
  const double sending = replay(without_sums, seconds).seconds;
  const double all = replay(costs, seconds).seconds;
  const auto n = static_cast<double>(steps);
  return {.bubble = equal_idle / (1 - equal_idle) * total_seconds(computations) /
                    static_cast<double>(computations.size()) / n,
          .messages = (sending - computing.seconds) / n,
          .reductions = (all - sending) / n,
          .all = (all - (1 - computing.idle) * computing.seconds) / n};
}

}  // namespace stagecoach
