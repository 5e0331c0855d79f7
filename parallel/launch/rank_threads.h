#pragma once
/// @file
/// Runs ranks as threads of this process.

#include <functional>
#include <memory>
#include <string>

#include "parallel/comm/flight_recorder.h"
#include "parallel/launch/launch.h"

namespace stagecoach {

/// Returns whether there are enough cores for each rank to have its own.
bool enough_cores(const World& world);

/// Calls `run` on one thread per rank of `world`, pinned to a core if there are enough cores. If a thread cannot be
/// started, throws Error and runs no rank. If a rank throws, its thread calls `tell`, which must not throw, to tell the
/// other ranks, and writes the rank's flight record. Returns when all ranks have ended, or throws the first error, with
/// its rank in the context (rank_failure.h).
void run_on_threads(const World& world,
                    const std::function<void(int rank, const std::shared_ptr<FlightRecorder>& recorder)>& run,
                    const std::function<void(int rank, const std::string& why)>& tell);

}  // namespace stagecoach
