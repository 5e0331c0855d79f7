#pragma once
/// @file
/// What the machinery around a communicator calls, and a training loop does not: CommThread, Heartbeat, and runs that
/// keep a flight record.

#include <filesystem>

namespace stagecoach {

/// Any thread may call these functions.
class CommunicatorControls {
 public:
  virtual ~CommunicatorControls() = default;

  /// Sets whether the thread of a duplicate may poll. By default that thread sleeps while it waits, because it shares a
  /// core with the rank's own thread. While the rank's thread waits too, the core is free, and with one core per rank
  /// the duplicate can poll.
  virtual void set_spinning(bool spinning) = 0;
  /// Restarts the deadline of the current wait of the communicator, because the rank that it waits for is busy but
  /// alive.
  virtual void renew_waits() = 0;
  /// Ends all current and later waits of the communicator with CommError.
  virtual void abort() = 0;
  /// If this rank fails from now on, a record of its last communication is written to `folder`
  /// (FlightRecorder::leave_in).
  virtual void leave_record_in(const std::filesystem::path& folder) = 0;
  /// Leaves what the communicator does from now on out of that record. Only the communicator's own thread may call it.
  virtual void stop_recording() = 0;
};

}  // namespace stagecoach
