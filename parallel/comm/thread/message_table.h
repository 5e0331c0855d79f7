#pragma once
/// @file
/// Messages between ranks that are threads: sends that wait for a receive, and receives that wait for a send. Whichever
/// comes second completes the match.

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "core/stream.h"
#include "core/tensor.h"
#include "parallel/comm/link_direction.h"

namespace stagecoach {

/// One thread at a time may use it: its owner holds the lock.
class MessageTable {
 public:
  struct Address {
    std::string group;
    int from;  ///< world rank, like `to`
    int to;
    int tag;
  };
  /// A message that was sent.
  struct Sent {
    Tensor tensor;  ///< undefined once it has been received
    Event ready;    ///< when the sender's device has computed it
    LinkDirection::Send send;
    bool completed = false;
    double completed_at = 0;  ///< when the message has arrived and its receive has been posted
    Event copied = {};        ///< recorded when a GPU copies it; the sender must not write to it before
  };
  /// A receive that was posted.
  struct Posted {
    Address address;
    LinkDirection::Post post;
    Tensor buffer;      ///< destination of a GPU's copy; undefined where the sender's memory is handed over
    Event buffer_free;  ///< when the receiver's device no longer uses `buffer`, if there is one
    bool matched = false;
    Tensor tensor = {};  ///< the received tensor: `buffer` with a copy, or the sender's tensor
    Event ready = {};    ///< when `tensor` is complete
    double arrival = 0;
  };

  /// Sends a message at time `now`, over a link like `link`. The device has computed it at `ready`.
  std::shared_ptr<Sent> send(const Address& address, const Tensor& tensor, const Event& ready, double now,
                             const Link& link);
  /// Posts a receive at time `now`. A copy between GPUs is written to `buffer`, which may be undefined, after
  /// `buffer_free`.
  std::shared_ptr<Posted> post(const Address& address, const Tensor& buffer, const Event& buffer_free, double now,
                               const Link& link);
  /// Withdraws a receive. A message that has already arrived for it is lost.
  void cancel(const std::shared_ptr<Posted>& posted);

 private:
  /// The unmatched sends and receives of one tag, oldest first. At most one of the two queues has entries.
  struct Queue {
    std::deque<std::shared_ptr<Sent>> sent;
    std::deque<std::shared_ptr<Posted>> posted;
  };
  struct Direction {
    explicit Direction(const Link& link) : link(link) {}
    LinkDirection link;
    std::map<int, Queue> queues;  // by tag
  };
  Direction& direction(const Address& address, const Link& link);
  static void match(LinkDirection& link, Sent& sent, Posted& posted);

  std::map<std::tuple<std::string, int, int>, Direction> directions_;  // by group, from, to
};

}  // namespace stagecoach
