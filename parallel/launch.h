#pragma once
/// @file
/// Runs a program as several ranks: it is written once, as what one rank does.

#include <functional>
#include <memory>
#include <vector>

#include "core/device.h"
#include "parallel/comm/communicator.h"

namespace stagecoach {

/// One rank: a device of its own and a way to talk to the others.
struct Rank {
  int index;  ///< from 0
  int world;  ///< how many there are
  Device device;
  Communicator& comm;
};

struct World {
  int ranks = 1;
  DeviceType device = DeviceType::cpu;  ///< rank r takes cpu:r, or GPU r mod `gpus` in a slot of its own
  int gpus = 1;
  int threads = 1;      ///< cores that a rank will use
  double timeout = 30;  ///< seconds that a rank waits for another before it gives up
  ClockKind clock = ClockKind::wall;
  Link link = {};  ///< between any two ranks, by the virtual clock
};

/// A world of one: for a program that can run on many ranks, and runs on `device` alone.
std::unique_ptr<Communicator> alone(Device device, ClockKind clock = ClockKind::wall);

/// Runs `body` as each rank, on a thread of its own; where there are enough cores the thread is pinned to one. Returns
/// when all have ended. If one throws, all others that wait for it, or will, are stopped, and its error is thrown here:
/// a UsageError or DataError as it is, another Error with the rank, its stage and micro-batch before its words. Throws
/// UsageError for a world of no ranks, of more than kMaxDevices, or with a timeout that is not positive.
void launch(const World& world, const std::function<void(Rank&)>& body);

}  // namespace stagecoach
