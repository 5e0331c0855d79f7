#pragma once
/// @file
/// The receives that a thread has posted with MPI, in all its communicators. Only sources that are built with MPI
/// include this header.
///
/// With a virtual clock, the receiver computes when a message arrives from the time when it was sent (in the header)
/// and the time when its receive was posted, and sends that time to the sender. It does so whenever the thread waits
/// for anything, so that a sender that waits for a posted receive can continue.

#include <mpi.h>

#include <memory>
#include <vector>

#include "parallel/comm/link_direction.h"
#include "parallel/comm/mpi/mpi_message.h"
#include "parallel/comm/mpi/mpi_world.h"

namespace stagecoach {

/// The posted receives of one thread. Only that thread uses it.
class MpiReceives {
 public:
  explicit MpiReceives(MpiWorld& world) : world_(world) {}

  struct Posted {
    MessageHeader like;  ///< has the expected type and shape
    MpiIncoming message;
    MpiRequests requests;          ///< the first is for the header
    std::shared_ptr<void> moving;  ///< see MpiWorld::keep_moving
    bool taken = false;            ///< set by the caller, who has waited for the message
    // Used with a virtual clock; with the wall clock, `direction` is null.
    LinkDirection* direction = nullptr;
    LinkDirection::Post post;
    MpiAddress answer{};  ///< where the sender waits for the time
    bool matched = false;
    double arrival = 0;
  };

  /// Posts a receive of a message into `tensor`.
  std::shared_ptr<Posted> post(const MpiAddress& from, const Tensor& tensor, const ErrorContext& context);
  /// Records, for a virtual clock, that `posted` was posted at `now`. The sender waits at `answer` for the arrival
  /// time.
  void expect(const std::shared_ptr<Posted>& posted, LinkDirection& direction, double now, const MpiAddress& answer);
  /// Finds the messages that have begun to arrive, computes their arrival times, and answers their senders.
  void advance();
  /// Withdraws `posted`, unless its message is taken. A message that has begun to arrive is lost; later messages are
  /// not.
  void cancel(const std::shared_ptr<Posted>& posted) noexcept;

 private:
  void answer(Posted& posted);

  MpiWorld& world_;
  std::vector<std::shared_ptr<Posted>> expected_;  // with a virtual clock: messages that have not arrived
};

}  // namespace stagecoach
