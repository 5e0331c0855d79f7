#pragma once
/// @file
/// Runs a program as several ranks. The program is written once, as the code of one rank. Ranks are threads of one
/// process, or processes that a launcher started; the rest of the program does not depend on which.

#include <functional>
#include <memory>

#include "core/device.h"
#include "parallel/comm/communicator.h"

namespace stagecoach {

/// One rank, with its own device and communicator.
struct Rank {
  int index;  ///< from 0
  int world;  ///< number of ranks
  Device device;
  Communicator& comm;
};

inline constexpr double kLongestTimeout = 1e6;  ///< seconds: eleven days

/// How ranks communicate.
enum class Transport { thread, mpi, nccl, gloo };

struct World {
  int ranks = 1;
  Transport transport = Transport::thread;
  DeviceType device = DeviceType::cpu;  ///< rank r uses cpu:r (cpu:r+1 on the modelled clock), meta:r to plan, or
                                        ///< GPU r mod `gpus` in its own slot
  int gpus = 0;                         ///< 0: all that this process can use
  int threads = 1;                      ///< cores used by each rank
  double timeout = 30;                  ///< seconds that a rank waits for another before it fails
  ClockKind clock = ClockKind::wall;
  Network network = {};           ///< the links between ranks, except by the wall clock
  DeviceModel device_model = {};  ///< the device that the modelled clock computes for
  ReduceKind reduce = ReduceKind::ordered;
};

/// Returns the device of rank `rank`. Throws UsageError for ranks on GPUs if there is none.
Device device_of(const World& world, int rank);

/// Returns the communicator of a world of one rank, for a program written for many ranks that runs on `device` alone.
std::unique_ptr<Communicator> self_communicator(Device device, ClockKind clock = ClockKind::wall,
                                                const DeviceModel& model = {});

/// Runs `body` once per rank of the world; in a process that a launcher started, only for that process's rank. Threads
/// are pinned to one core each if there are enough cores. Returns when all ranks have ended. If a rank throws, current
/// and later waits of the other ranks for it end, and its error is then thrown here: a UsageError or DataError
/// unchanged, any other Error with the rank, its stage and its micro-batch before its context. Processes throw the
/// errors of their own rank. Throws UsageError if the world has no ranks, more than kMaxDevices ranks, or another
/// number than the launcher started; if the timeout is not positive or exceeds kLongestTimeout; or if the transport is
/// not built in.
void launch(const World& world, const std::function<void(Rank&)>& body);

/// If ranks are processes, replaces `values` with those of rank 0, because each process measures different values. All
/// processes call it, even if the world includes only some of them.
void broadcast_from_rank_zero(const World& world, Tensor& values);

}  // namespace stagecoach
