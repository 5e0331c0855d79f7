#include "chapters/04_pipedream/drain_control.h"

#include <algorithm>

namespace stagecoach {

DrainControl::DrainControl(const Schedule& schedule, Epoch& epoch)
    : schedule_(schedule),
      first_batch_(epoch.steps_done()),
      last_batch_(first_batch_ + ceil_div(schedule.microbatches, schedule.batch) - 1),
      ahead_(batches_ahead(schedule)),
      epoch_(epoch) {}

DrainControl::Batches DrainControl::admitted(const Action& action) {
  const BatchRange range = batches_of(schedule_, action);
  Batches batches{first_batch_ + range.first, first_batch_ + range.end};
  while (batches.end > batches.first && !may_begin(batches.end - 1)) {
    --batches.end;
  }
  return batches;
}

bool DrainControl::may_begin(std::int64_t batch) {
  return epoch_.may_begin(batch, std::min(batch + ahead_, last_batch_));
}

void DrainControl::finish() {
  static_cast<void>(may_begin(last_batch_));
  epoch_.stop_if_refused();
}

}  // namespace stagecoach
