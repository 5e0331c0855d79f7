#pragma once
/// @file
/// Decides where a pipeline that does not drain stops after a request: between two batches. No rank begins the later
/// batch, or posts a receive for it; the earlier batches run up to their updates. Then the pipeline is empty, and its
/// state can be saved.

#include <algorithm>
#include <cstdint>

#include "chapters/common/run.h"
#include "parallel/schedule/pipedream.h"

namespace stagecoach {

class DrainControl {
 public:
  /// `schedule` covers the remaining batches of `epoch`. Both must outlive this object.
  DrainControl(const Schedule& schedule, Epoch& epoch)
      : schedule_(schedule),
        first_batch_(epoch.steps_done()),
        last_batch_(first_batch_ + ceil_div(schedule.microbatches, schedule.batch) - 1),
        ahead_(batches_ahead(schedule)),
        epoch_(epoch) {}

  /// A range of batches, numbered from the start of the epoch.
  struct Batches {
    std::int64_t first;
    std::int64_t end;
  };
  /// Returns the batches of `action`, which may be a message, that come before the stop. If there are none, the action
  /// must be skipped. Rank 0 decides ahead of time (see batches_ahead), so that this function rarely waits for it.
  Batches admitted(const Action& action) {
    const BatchRange range = batches_of(schedule_, action);
    Batches batches{first_batch_ + range.first, first_batch_ + range.end};
    while (batches.end > batches.first && !may_begin(batches.end - 1)) {
      --batches.end;
    }
    return batches;
  }
  /// Called by each rank after all actions have run or were skipped, and the pipeline is empty: receives rank 0's last
  /// decision. If batches were skipped, saves and throws Interrupted.
  void finish() {
    static_cast<void>(may_begin(last_batch_));
    epoch_.stop_if_refused();
  }

 private:
  bool may_begin(std::int64_t batch) { return epoch_.may_begin(batch, std::min(batch + ahead_, last_batch_)); }

  const Schedule& schedule_;
  std::int64_t first_batch_;
  std::int64_t last_batch_;
  int ahead_;
  Epoch& epoch_;
};

}  // namespace stagecoach
