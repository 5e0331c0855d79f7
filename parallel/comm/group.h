#pragma once
/// @file
/// A group of ranks.

#include <memory>
#include <string>
#include <vector>

#include "core/device.h"
#include "parallel/comm/clock.h"
#include "parallel/comm/flight_recorder.h"
#include "parallel/comm/sent_bytes.h"

namespace stagecoach {

/// How all_reduce computes its sum.
enum class ReduceKind {
  ordered,  ///< in rank order: equal inputs give equal bytes, on every transport
  native,   ///< by MPI's, Gloo's or NCCL's own all-reduce: faster where it is tuned for the network, and within 1e-5
            ///< (relative) of the ordered sum. It does not check that shapes and types agree. Between threads: ordered.
};

/// A group, as seen by one of its ranks.
struct Group {
  std::string name;          ///< the same on all its ranks, and unique in the world
  int rank = 0;              ///< this rank's number in the group
  std::vector<int> members;  ///< world ranks of the group's members; errors name ranks by these
  Device device;
  std::shared_ptr<Clock> clock;  ///< clock of the thread that uses the communicator
  std::shared_ptr<FlightRecorder> recorder;
  ReduceKind reduce = ReduceKind::ordered;
  std::shared_ptr<SentBytes> sent = std::make_shared<SentBytes>();  ///< of the rank; groups made from this one share it

  RankGroups siblings = {};  ///< the groups of the split that made this one, itself among them (see Network)

  int size() const { return static_cast<int>(members.size()); }
  /// Returns the world rank of rank `rank` of the group.
  int member(int rank) const { return members[static_cast<std::size_t>(rank)]; }
};

}  // namespace stagecoach
