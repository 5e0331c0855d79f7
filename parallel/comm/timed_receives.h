#pragma once
/// @file
/// The receives that a thread has posted, in all its communicators, where a clock computes the times of messages and
/// ranks share no memory.
///
/// The receiver computes when a message arrives from the time when it was sent (in the header) and the time when its
/// receive was posted, and sends that time to the sender. It does so whenever the thread waits for anything, so that a
/// sender that waits for a posted receive can continue.

#include <vector>

#include "parallel/comm/link_direction.h"

namespace stagecoach {

/// Only one thread uses it.
class TimedReceives {
 public:
  /// A posted receive of some transport.
  class Posted {
   public:
    Posted() = default;
    virtual ~Posted() = default;
    Posted(const Posted&) = delete;
    Posted& operator=(const Posted&) = delete;

    /// Returns when the message arrived, after advance() has found it.
    double arrival() const { return arrival_; }

   private:
    friend class TimedReceives;
    /// Returns, without waiting, whether the message's header has arrived.
    virtual bool has_begun() = 0;
    /// Returns what the header says.
    virtual LinkDirection::Send sent() const = 0;
    /// Tells the sender that the receiver has the message at `completed_at`.
    virtual void answer(double completed_at) = 0;

    LinkDirection* direction_ = nullptr;  // null if no time is computed
    LinkDirection::Post post_;
    bool is_matched_ = false;
    double arrival_ = 0;
  };

  /// Records that `posted` was posted at `now`. It must be withdrawn before it is destroyed, unless it has begun.
  void expect(Posted& posted, LinkDirection& direction, double now);
  /// Finds the messages that have begun to arrive, computes their arrival times, and answers their senders.
  void advance();
  /// Does the same, and forgets `posted`.
  void withdraw(Posted& posted) noexcept;

 private:
  static void match(Posted& posted);

  std::vector<Posted*> expected_;  // their messages have not begun
};

}  // namespace stagecoach
