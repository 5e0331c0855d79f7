#pragma once
/// @file
/// Runs a program as several ranks: it is written once, as what one rank does. Ranks are threads of one process, or
/// each is a process that a launcher started; nothing else can tell.

#include <functional>
#include <memory>

#include "core/device.h"
#include "parallel/comm/communicator.h"

namespace stagecoach {

/// One rank: a device of its own and a communicator.
struct Rank {
  int index;  ///< from 0
  int world;  ///< how many there are
  Device device;
  Communicator& comm;
};

inline constexpr double kLongestTimeout = 1e6;  ///< seconds: eleven days

/// How ranks communicate.
enum class Transport { thread, mpi, nccl };

struct World {
  int ranks = 1;
  Transport transport = Transport::thread;
  DeviceType device = DeviceType::cpu;  ///< rank r takes cpu:r, or GPU r mod `gpus` in a slot of its own
  int gpus = 1;
  int threads = 1;      ///< cores that a rank will use
  double timeout = 30;  ///< seconds that a rank waits for another before it gives up
  ClockKind clock = ClockKind::wall;
  Link link = {};  ///< between any two ranks, by the virtual clock
  ReduceKind reduce = ReduceKind::ordered;
};

/// The device of rank `rank`.
Device device_of(const World& world, int rank);

/// A world of one rank: for a program that can run on many ranks, and runs on `device` alone.
std::unique_ptr<Communicator> self_communicator(Device device, ClockKind clock = ClockKind::wall);

/// Runs `body` as each rank of the world; in a process that a launcher started, as the one that it is. Threads are
/// pinned to a core each where there are enough. Returns when all ranks have ended. If one throws, all others that wait
/// for it, or will, are stopped; then its error is thrown here: a UsageError or DataError as it is, another Error with
/// the rank, its stage and micro-batch before its context. Processes throw the errors of their own rank. Throws
/// UsageError for a world of no ranks, of more than kMaxDevices, of others than the launcher started, with a timeout
/// that is not positive or beyond kLongestTimeout, or with a transport that is not built in.
void launch(const World& world, const std::function<void(Rank&)>& body);

/// Makes `values` those of rank 0 where ranks are processes: what each has measured by itself differs. All processes
/// call it, also for a world of some of them.
void broadcast_from_rank_zero(const World& world, Tensor& values);

}  // namespace stagecoach
