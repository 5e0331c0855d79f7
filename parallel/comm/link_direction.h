#pragma once
/// @file
/// One direction between two ranks, for the virtual clock: when each message starts, and when it arrives.
///
/// Messages travel as MPI libraries send them. A short one (up to kEagerBytes) is sent eagerly: it starts when it is
/// sent, and waits at the receiver until that wants it. A long one needs a rendezvous: it starts when it is sent and
/// its receive is posted, so a receive that is posted late costs the whole transfer.
///
///   short:  start = max(sent, link free of short messages)
///   long:   start = max(sent, posted, link free of long messages)
///   arrival = start + bytes / bandwidth + latency; the link is taken for bytes / bandwidth
///
/// Short messages slip in between the packets of a long one, so the two kinds do not wait for each other. A long
/// message waits for those that were sent before it and whose receives were posted before its own: the time is then
/// known when both sides are there, whichever comes second, and does not depend on who is faster in real time. Where
/// receives are posted in the order of the sends, that is all messages before it.

#include <cstdint>
#include <set>
#include <vector>

#include "parallel/comm/link.h"

namespace stagecoach {

/// Source: btl_vader_eager_limit of Open MPI 4.1, for processes of one machine. Over TCP its limit is 64 KiB.
inline constexpr double kEagerBytes = 4096;

/// Where ranks share no memory, each end has one: the sender's numbers sends, the receiver's does the rest.
class LinkDirection {
 public:
  explicit LinkDirection(const Link& link) : link_(link) {}

  struct Send {
    std::int64_t number = 0;  ///< counts the messages, in the order in which they were sent
    double bytes = 0;
    double time = 0;  ///< when it was sent; of a short message: when it arrives
  };
  struct Post {
    std::int64_t number = 0;  ///< counts the receives, in the order in which they were posted
    double time = 0;
  };
  /// A message is sent at time `now`.
  Send send(double bytes, double now);
  /// A receive is posted at time `now`.
  Post post(double now) { return {posts_++, now}; }
  /// They belong together: returns when the message arrives.
  double match(const Send& send, const Post& post);
  /// No message will come for it.
  void cancel(const Post& post) { matched_posts_.add(post.number); }

 private:
  /// Numbers from 0, of which most are added in order.
  class Numbers {
   public:
    void add(std::int64_t number);
    /// The least that was not added yet.
    std::int64_t missing() const { return missing_; }

   private:
    std::int64_t missing_ = 0;
    std::set<std::int64_t> beyond_;
  };
  /// A long message that has a place on the link.
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
  double short_free_ = 0;            // when the last short message is through
  double long_free_ = 0;             // and the last of the long ones that all others come after
  std::vector<Transfer> transfers_;  // the other long ones
};

}  // namespace stagecoach
