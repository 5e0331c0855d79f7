#include "chapters/04_pipedream/drain_control.h"

#include <algorithm>

namespace stagecoach {

DrainControl::DrainControl(const Schedule& schedule, std::int64_t first_batch, std::int64_t batches, Epoch& epoch)
    : schedule_(schedule),
      first_batch_(first_batch),
      last_batch_(batches - 1),
      ahead_(batches_ahead(schedule)),
      epoch_(epoch) {}

bool DrainControl::may_begin(int batch) {
  return epoch_.may_begin(in_epoch(batch), std::min(in_epoch(batch) + ahead_, last_batch_));
}

BatchRange DrainControl::let_in_of(const Action& action) {
  BatchRange batches = batches_of(schedule_, action);
  while (batches.end > batches.first && !may_begin(batches.end - 1)) {
    --batches.end;
  }
  return batches;
}

void DrainControl::finish() { static_cast<void>(epoch_.may_begin(last_batch_, last_batch_)); }

}  // namespace stagecoach
