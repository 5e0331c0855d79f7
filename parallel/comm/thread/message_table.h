#pragma once
/// @file
/// Messages between ranks that are threads: those that were sent and wait for a receive, and receives that were posted
/// and wait for a message. Whichever comes second completes the match.

#include <compare>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "core/stream.h"
#include "core/tensor.h"
#include "parallel/comm/link_direction.h"

namespace stagecoach {

/// One thread at a time may use it: its owner has the lock.
class MessageTable {
 public:
  struct Address {
    std::string group;
    int from;  ///< with `to`: by their numbers in the whole world
    int to;
    int tag;
  };
  /// A message that was sent.
  struct Sent {
    Tensor tensor;  ///< undefined when it was taken
    Event ready;    ///< when the sender's device has made it
    LinkDirection::Send send;
    bool completed = false;
    double completed_at = 0;  ///< when it has arrived and its receive is posted
    Event copied = {};        ///< recorded where a GPU copies it: until then the sender must not write to it
  };
  /// A receive that was posted.
  struct Posted {
    Address address;
    LinkDirection::Post post;
    Tensor room;      ///< for a GPU's copy of it; undefined where the sender's memory is handed over
    Event room_free;  ///< when the receiver's device has no other use for that
    bool matched = false;
    Tensor tensor = {};  ///< what came: the room with a copy of it, or the sender's tensor
    Event ready = {};    ///< when it has its elements
    double arrival = 0;
  };

  /// Sends at time `now`, over a link like `link`.
  std::shared_ptr<Sent> send(const Address& address, const Tensor& tensor, double now, const Link& link);
  /// Posts a receive at time `now`. A copy between GPUs goes to `room`; it may be undefined.
  std::shared_ptr<Posted> post(const Address& address, const Tensor& room, double now, const Link& link);
  /// No message is wanted for it any more. One that has come already is gone.
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
