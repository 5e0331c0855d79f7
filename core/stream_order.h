#pragma once
/// @file
/// The order of calls on different streams of asynchronous CPU devices. A call that uses memory which a call on another
/// stream writes must come after it: by an event, or because the library orders both. Otherwise the result would depend
/// on which thread is faster, so the second call is refused, whichever would have come first in this run.
///
/// Each stream has a clock: for every other stream, the last call of it that is certain to have run (Lamport, "Time,
/// clocks, and the ordering of events in a distributed system", 1978; as vectors: Mattern, 1989). The caller has one
/// too.

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/call_queue.h"
#include "core/storage.h"

namespace stagecoach {

/// For each queue, the last of its calls that are certain to have run.
class VectorClock {
 public:
  Ticket of(const CallQueue* queue) const;
  void include(CallQueue* queue, Ticket ticket);
  void include(const VectorClock& other);

 private:
  std::vector<std::pair<CallQueue*, Ticket>> last_;
};

/// A point in a queue, for Event.
struct QueuePoint {
  CallQueue* queue;
  Ticket ticket;
  VectorClock clock;  // of the point
};

/// A use of memory by a call.
struct Access {
  Block* block;
  bool writes;
  std::size_t bytes;  ///< of the tensor
};

/// Who orders a call after earlier calls on other streams that use the same memory: the library, which inserts waits
/// and also lets later calls wait, or the caller by events.
enum class OrderedBy { library, caller };

/// Appends a call that makes these accesses to the queue of `stream`. Throws Error, which names both operations, if an
/// access conflicts with a call on another stream and nothing orders the two.
void enqueue(const Stream& stream, const char* name, std::span<const Access> accesses, OrderedBy ordered_by,
             std::function<void()> call);

/// Waits until the calls so far that write the memory have run, and with `also_reads` those that read it.
void wait_for_uses(Block& block, bool also_reads);

/// The events of asynchronous devices.
std::shared_ptr<const QueuePoint> mark_point(const Stream& stream);
void wait_in_stream(const QueuePoint& point, const Stream& stream);
void wait_for_point(const QueuePoint& point);

}  // namespace stagecoach
