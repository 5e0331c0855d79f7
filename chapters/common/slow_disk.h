#pragma once
/// @file
/// Ranks whose disk is slow.

#include <chrono>

#include "parallel/comm/communicator.h"

namespace stagecoach {

/// Calls `body`, which reads from a disk or writes to it on some ranks, and returns when all ranks have done so. Until
/// then they wait for each other up to ten minutes longer than --timeout. All ranks call it.
template <class Body>
void allow_for_slow_disk(Communicator& comm, const Body& body) {
  using Clock = std::chrono::steady_clock;
  comm.renew_waits(Clock::now() + std::chrono::minutes(10));
  body();
  comm.barrier();
  comm.renew_waits(Clock::now());
}

}  // namespace stagecoach
