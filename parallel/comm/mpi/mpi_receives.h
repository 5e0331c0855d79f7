#pragma once
/// @file
/// The receives that a thread has posted with MPI, in all its communicators. Only sources that are built with MPI
/// include this.
///
/// By a virtual clock the receiver works out when a message arrives, as it knows when it was sent (by the header) and
/// when its receive was posted, and answers the sender with that time. It does so whenever the thread waits for
/// anything, so that a sender which waits for a posted receive goes on.

#include <mpi.h>

#include <memory>
#include <vector>

#include "parallel/comm/link_direction.h"
#include "parallel/comm/mpi/mpi_message.h"
#include "parallel/comm/mpi/mpi_world.h"

namespace stagecoach {

/// Only its thread uses it.
class MpiReceives {
 public:
  explicit MpiReceives(MpiWorld& world) : world_(world) {}

  struct Posted {
    MpiIncoming message;
    MpiRequests requests;  ///< the first is that for the header
    // By a virtual clock; the first is null by the wall's.
    LinkDirection* direction = nullptr;
    LinkDirection::Post post;
    MpiAddress answer{};  ///< where the sender waits for the time
    bool matched = false;
    double arrival = 0;
  };

  /// Posts a receive of a message into `tensor`.
  std::shared_ptr<Posted> post(const MpiAddress& from, const Tensor& tensor, const MpiWorld::ErrorContext& doing);
  /// By a virtual clock: it was posted at `now`. The sender waits at `answer` for the time when it has its message.
  void expect(const std::shared_ptr<Posted>& posted, LinkDirection& direction, double now, const MpiAddress& answer);
  /// Looks which messages have begun to come, works out when they arrive, and answers their senders.
  void advance();
  /// `posted` is all there: returns its tensor.
  Tensor finish(const std::shared_ptr<Posted>& posted);
  /// Withdraws `posted` unless its message has begun to come. That is lost otherwise; none that follows is.
  void cancel(const std::shared_ptr<Posted>& posted) noexcept;

 private:
  void answer(Posted& posted);

  MpiWorld& world_;
  std::vector<std::shared_ptr<Posted>> expected_;  // by a virtual clock: those whose messages have not come
  std::vector<std::shared_ptr<Posted>> spare_;  // for the next ones: to make one takes longer than to send a few bytes
};

}  // namespace stagecoach
