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
  /// `schedule` is that of the batches that `epoch` has left. Both must outlive this object.
  DrainControl(const Schedule& schedule, Epoch& epoch);

  /// Batches of an epoch, counted in it.
  struct Batches {
    std::int64_t first;
    std::int64_t end;
  };
  /// Those of the batches of `action`, which may be a message, that come before the stop: none if it is to be left out.
  /// Rank 0 decides, and says so ahead of time (see batches_ahead), so that this hardly ever waits.
  Batches admitted(const Action& action);
  /// All actions have run or were left out. Each rank calls it, so that each has heard rank 0's last word.
  void finish();

 private:
  bool may_begin(std::int64_t batch);

  const Schedule& schedule_;
  std::int64_t first_batch_;
  std::int64_t last_batch_;
  int ahead_;
  Epoch& epoch_;
};

}  // namespace stagecoach
