#pragma once
/// @file
/// Stopping all ranks at the same batch, which rank 0 chooses when it has got a signal (interrupt.h).

#include <chrono>
#include <cstdint>

#include "parallel/comm/communicator.h"

namespace stagecoach {

/// One rank's side. Rank 0 tells the others up to which batch they may go on: for one long batch at a time, or for
/// several short ones. All ranks call the same functions in the same order.
class StopProtocol {
 public:
  explicit StopProtocol(Communicator& comm) : comm_(comm) {}

  /// The next batch has index `first`. Batches may take longer than those before: rank 0 is asked after the first one.
  void restart(std::int64_t first = 0);
  /// Called after each batch: whether to stop before the next one.
  bool asked();
  /// For a pipeline that does not drain after each batch, in place of asked(): whether `batch` may begin. Not when a
  /// stop was asked for before, and then no later one may either. Rank 0 answers for several batches at once, at least
  /// up to `last`, which must exist: the last batch that other ranks may begin before rank 0 asks again.
  bool may_begin(std::int64_t batch, std::int64_t last);
  /// Whether a batch was not allowed to begin.
  bool refused() const { return refused_; }

 private:
  std::int64_t batches_at_once();

  Communicator& comm_;
  std::int64_t next_ = 0;      // the batch after the one that asked() was called for
  std::int64_t admitted_ = 0;  // batches before this one may begin
  bool refused_ = false;       // the others may not
  std::chrono::steady_clock::time_point admitted_at_;
};

}  // namespace stagecoach
