#pragma once
/// @file
/// The receives that a thread has posted with MPI, in all its communicators. Only sources that are built with MPI
/// include this header.

#include <mpi.h>

#include <memory>

#include "parallel/comm/mpi/mpi_message.h"
#include "parallel/comm/mpi/mpi_world.h"
#include "parallel/comm/timed_receives.h"

namespace stagecoach {

/// The posted receives of one thread. Only that thread uses it.
class MpiReceives : public TimedReceives {
 public:
  explicit MpiReceives(MpiWorld& world) : world_(world) {}

  struct Posted final : TimedReceives::Posted {
    MpiWorld* world;
    MessageHeader like;  ///< has the expected type and shape
    MpiIncoming message;
    MpiRequests requests;          ///< the first is for the header
    std::shared_ptr<void> moving;  ///< see MpiWorld::keep_moving
    bool taken = false;            ///< set by the caller, who has waited for the message
    MpiAddress sender{};           ///< where the sender waits for the time, if that is computed

   private:
    bool has_begun() override { return world->are_done({&requests.front(), 1}); }
    LinkDirection::Send sent() const override { return message.header().send; }
    void answer(double completed_at) override;
  };

  /// Posts a receive of a message into `tensor`.
  std::shared_ptr<Posted> post(const MpiAddress& from, const Tensor& tensor, const ErrorContext& context);
  /// Withdraws `posted`, unless its message is taken. A message that has begun to arrive is lost; later messages are
  /// not.
  void cancel(const std::shared_ptr<Posted>& posted) noexcept;

 private:
  MpiWorld& world_;
};

}  // namespace stagecoach
