#pragma once
/// @file
/// Where a pipeline that does not drain stops when it is asked to: between two batches. No rank has begun the later one
/// then, and posted no receive for it; the ones before it run to their updates. Then the pipeline is empty, and can be
/// saved.

#include <cstdint>

#include "chapters/common/run.h"
#include "parallel/schedule/pipedream.h"

namespace stagecoach {

class DrainControl {
 public:
  /// For a run of `schedule`, from batch `first_batch` on of `epoch`, which has `batches`. All must outlive this
  /// object.
  DrainControl(const Schedule& schedule, std::int64_t first_batch, std::int64_t batches, Epoch& epoch);

  /// Whether to run an action, a message too; otherwise its batch is after the stop. Rank 0 decides, and says so ahead
  /// of time (see batches_ahead), so that this hardly ever waits.
  bool lets_in(const Action& action) { return may_begin(batches_of(schedule_, action).first); }
  /// Those of the batches of an update or reduction that were let in.
  BatchRange let_in_of(const Action& action);
  /// The number, in the epoch, of a batch of the schedule.
  std::int64_t in_epoch(int batch) const { return first_batch_ + batch; }
  /// All actions have run or were left out. Each rank calls it, so that each has heard rank 0's last word.
  void finish();

 private:
  bool may_begin(int batch);

  const Schedule& schedule_;
  std::int64_t first_batch_;
  std::int64_t last_batch_;
  int ahead_;
  Epoch& epoch_;
};

}  // namespace stagecoach
