#pragma once
/// @file
/// How a signal stops a run: all ranks stop at the same batch, which rank 0 chooses.
///
/// The first SIGINT, SIGTERM, SIGHUP or SIGUSR1 tells the program to save and stop; another one, more than a second
/// later, ends it at once. Launchers of many processes forward these signals, and send one before a job's time limit.

#include <cstdint>

#include "parallel/comm/communicator.h"

namespace stagecoach {

/// Thrown when a run was told to stop, after its state was saved.
struct Interrupted {};

/// Installs handlers: from now on these signals are noted, and no longer end the program.
void catch_interrupts();

/// One rank's side of the protocol. Rank 0 tells the others up to which batch they may continue: one long batch at a
/// time, or several short ones. All ranks call the same functions in the same order.
class StopProtocol {
 public:
  explicit StopProtocol(Communicator& comm) : comm_(comm) {}

  /// Makes `first` the index of the next batch. Batches may take longer from here on, so rank 0 is asked again after
  /// the first one.
  void restart(std::int64_t first = 0);
  /// Called after each batch. Returns whether to stop before the next one.
  bool asked();
  /// Replaces asked() for a pipeline that does not drain after each batch. Returns whether `batch` may begin. Once a
  /// stop was requested, neither this batch nor a later one may. Rank 0 answers for several batches at once, at least
  /// up to `last`, which must exist: the last batch that other ranks may begin before rank 0 calls this function again.
  bool may_begin(std::int64_t batch, std::int64_t last);
  /// Returns whether a batch was not allowed to begin.
  bool refused() const { return refused_; }

 private:
  std::int64_t batches_at_once();

  Communicator& comm_;
  std::int64_t next_ = 0;      // the batch that the last asked() decided about
  std::int64_t admitted_ = 0;  // batches before this one may begin
  bool refused_ = false;       // later batches may not
  double admitted_at_ = -1;    // by the rank's clock
};

}  // namespace stagecoach
