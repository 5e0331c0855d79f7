#pragma once
/// @file
/// Runs ranks whose messages are watched: a deadlock is found at once, without time-outs, and is the same on every
/// machine.

#include <functional>
#include <vector>

#include "core/shape.h"
#include "parallel/comm/communicator.h"

namespace stagecoach::labs {

/// A message that was received.
struct Message {
  int from = 0;
  int to = 0;
  int tag = 0;
  Shape shape;
  bool operator==(const Message&) const = default;
};

/// Whether a rank may have several messages under way.
enum class Calls {
  any,
  waiting_only,  ///< send and receive, or send_async and receive_async that are waited for before the next call
};

/// Runs `body` once per rank, each on a thread of its own with the device cpu:rank, and returns the messages: those of
/// rank 0 first, each rank's in the order in which it began to send them. A message goes from memory to memory: a send
/// waits until its receive is posted. Only messages are supported, no collectives and no numbers.
///
/// Throws Failed with `look_at` if ranks wait for each other forever (with the circle), if a message is not received,
/// or if `calls` does not allow a call. Otherwise throws what the first rank that failed has thrown.
std::vector<Message> run_watched(int ranks, const std::function<void(Communicator& comm)>& body,
                                 const std::string& look_at, Calls calls = Calls::any);

/// Notes that the rank of `comm`, of run_watched, begins step `step`: if ranks of different steps wait for each other,
/// the report says so.
void begin_step(Communicator& comm, int step);

/// Throws Failed with `look_at` unless all sends that `comm`, of run_watched, has begun so far have been waited for, or
/// have been asked for and were complete.
void require_sends_waited_for(Communicator& comm, const std::string& look_at);

}  // namespace stagecoach::labs
