#pragma once
/// @file
/// Ranks as threads of this process.

#include <functional>
#include <memory>
#include <string>

#include "parallel/comm/flight_recorder.h"
#include "parallel/launch/launch.h"

namespace stagecoach {

/// Whether each rank can have the cores that it uses to itself.
bool enough_cores(const World& world);

/// Calls `run` on a thread for each rank of `world`, pinned to a core where there are enough. Where one of the threads
/// cannot be started, throws Error and runs none. When a rank throws, `tell` is called on its thread, to tell the
/// others (it must not throw), and its flight record is left. Returns when all have ended; throws what the first threw,
/// with the rank in its context (rank_failure.h).
void run_on_threads(const World& world,
                    const std::function<void(int rank, const std::shared_ptr<FlightRecorder>& recorder)>& run,
                    const std::function<void(int rank, const std::string& why)>& tell);

}  // namespace stagecoach
