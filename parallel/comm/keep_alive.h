#pragma once
/// @file
/// Work of which nobody knows how long it takes, such as writing to a slow disk, while other ranks wait.

#include <functional>
#include <optional>

#include "parallel/comm/heartbeat.h"

namespace stagecoach {

class KeepAlive {
 public:
  /// `comm` must outlive this object. `timeout` is that of the world, in seconds.
  KeepAlive(Communicator& comm, double timeout, Heartbeat::Seconds longest_call = Heartbeat::kLongestCall)
      : comm_(comm), timeout_(timeout), longest_call_(longest_call) {}

  /// Calls `body` on each rank, and returns when it has returned on all. All ranks call it together.
  ///
  /// Meanwhile each rank gives signs of life (heartbeat.h). As long as they come from all ranks, waits on this
  /// communicator last longer than the timeout, within `body` and for its end. A rank whose process is stopped falls
  /// silent at once; one whose thread is in a single call for longer than `longest_call`, as with a disk that never
  /// answers, falls silent then. The others get a CommError one timeout later; they get it at once if `body` throws.
  void during(const std::function<void()>& body);

 private:
  Communicator& comm_;
  const double timeout_;
  const Heartbeat::Seconds longest_call_;
  std::optional<CommThread> thread_;  // made at the first call, and only if there are other ranks
};

}  // namespace stagecoach
