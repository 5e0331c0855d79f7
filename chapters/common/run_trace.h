#pragma once
/// @file
/// The trace of a run's first training steps, and with --profile the table of where their time went.

#include <cstdint>
#include <memory>

#include "chapters/common/run_folder.h"
#include "core/trace.h"
#include "parallel/comm/communicator.h"

namespace stagecoach {

class RunTrace {
 public:
  /// Records the calling thread from here on. With `profile` each span waits for the device's work to end.
  RunTrace(Communicator& comm, bool profile);
  ~RunTrace() { Trace::detach(); }
  RunTrace(const RunTrace&) = delete;
  RunTrace& operator=(const RunTrace&) = delete;

  /// Ends the recording after the last step that it is for.
  void add_step();
  /// Ends the recording, and writes and prints what it has; does nothing when that is done. All ranks call it.
  void finish(RunFolder& folder);

 private:
  Communicator& comm_;
  bool profile_;
  std::unique_ptr<Trace> trace_ = std::make_unique<Trace>();  // null once it is written
  std::int64_t steps_ = 0;
};

}  // namespace stagecoach
