#pragma once
/// @file
/// Runs ranks as threads of this process, or one rank as this process, and reports their failures.

#include <functional>
#include <memory>
#include <string>

#include "parallel/comm/flight_recorder.h"
#include "parallel/comm/group_communicator.h"
#include "parallel/launch/launch.h"

namespace stagecoach {

/// Returns whether there are enough cores for each rank to have its own.
bool enough_cores(const World& world);

/// Returns the group of all ranks, as seen by rank `rank` on `device`.
Group world_group(const World& world, int rank, Device device, std::shared_ptr<Clock> clock,
                  std::shared_ptr<FlightRecorder> recorder);

/// Calls `run` on one thread per rank of `world`, pinned to a core if there are enough cores. If a thread cannot be
/// started, throws Error and runs no rank. If a rank throws, its thread calls `tell`, which must not throw, to tell the
/// other ranks, and writes the rank's flight record. Returns when all ranks have ended, or throws the first error. Its
/// text names the rank, its stage and its micro-batch, unless it is a user error or names them already.
void run_on_threads(const World& world,
                    const std::function<void(int rank, const std::shared_ptr<FlightRecorder>& recorder)>& run,
                    const std::function<void(int rank, const std::string& why)>& tell);

/// Calls `run` in a process that is rank `rank`. If `run` throws an error, writes the rank's flight record, calls
/// `tell` to tell the other ranks, and throws the error with the same addition to its text.
void run_as_process(int rank, const std::function<void(const std::shared_ptr<FlightRecorder>& recorder)>& run,
                    const std::function<void(const std::string& why)>& tell);

}  // namespace stagecoach
