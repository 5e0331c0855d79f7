#pragma once
/// @file
/// One direction between two ranks, for the virtual clock: when each message starts, and when it arrives.
///
/// Messages travel as MPI libraries send them. A short one (up to kEagerBytes) is sent eagerly: it starts when it is
/// sent, and waits at the receiver until it is received. A long one needs a rendezvous: it starts when it has been sent
/// and its receive has been posted, so a receive that is posted late costs the whole transfer.
///
///   short:  start = max(sent, link free of short messages)
///   long:   start = max(sent, posted, link free of long messages)
///   arrival = start + bytes / bandwidth + latency; the link is occupied for bytes / bandwidth
///
/// Short messages slip in between the packets of a long one, so the two kinds do not wait for each other. A long
/// message waits for those that were sent before it and whose receives were posted before its own. Its time is then
/// known as soon as both sides have begun, and does not depend on which side is faster in real time. Where receives are
/// posted in the order of the sends, it waits for all earlier long messages.

#include <cstdint>
#include <set>
#include <vector>

#include "parallel/comm/link.h"

namespace stagecoach {

/// Source: btl_vader_eager_limit of Open MPI 4.1, for processes on one machine. Open MPI's limit over TCP is 64 KiB.
inline constexpr double kEagerBytes = 4096;

/// One direction of a link. Where ranks share no memory, each end has one: the sender's numbers the sends, and the
/// receiver's does the rest.
class LinkDirection {
 public:
  explicit LinkDirection(const Link& link) : link_(link) {}

  struct Send {
    std::int64_t number = 0;  ///< counts messages in the order in which they are sent
    double bytes = 0;
    double time = 0;  ///< when it was sent; for a short message: when it arrives
  };
  struct Post {
    std::int64_t number = 0;  ///< counts receives in the order in which they are posted
    double time = 0;
  };
  /// Sends a message at time `now`.
  Send send(double bytes, double now);
  /// Posts a receive at time `now`.
  Post post(double now) { return {posts_++, now}; }
  /// Matches a send with its receive, and returns when the message arrives.
  double match(const Send& send, const Post& post);
  /// Withdraws a receive for which no message will arrive.
  void cancel(const Post& post) { matched_posts_.add(post.number); }

 private:
  /// A set of numbers from 0, most of which are added in order.
  class Numbers {
   public:
    void add(std::int64_t number);
    /// Returns the smallest number that has not been added.
    std::int64_t missing() const { return missing_; }

   private:
    std::int64_t missing_ = 0;
    std::set<std::int64_t> beyond_;
  };
  /// A long message that has been scheduled on the link.
  struct Transfer {
    std::int64_t send;
    std::int64_t post;
    double through;
  };

  Link link_;
  std::int64_t sends_ = 0;
  std::int64_t posts_ = 0;
  Numbers matched_sends_;
  Numbers matched_posts_;
  double short_free_ = 0;            // when the last short message has left the link
  double long_free_ = 0;             // the same for the long messages that precede all others
  std::vector<Transfer> transfers_;  // the other long messages
};

}  // namespace stagecoach
