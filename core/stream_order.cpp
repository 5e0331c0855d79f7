#include "core/stream_order.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "core/asynchronous.h"
#include "core/base/error.h"

namespace stagecoach {
namespace {

/// The clocks of all queues and of the callers. (All threads that enqueue share one clock: a thread that waits for a
/// call is taken to tell the others.)
struct Order {
  std::mutex mutex;
  std::map<const CallQueue*, VectorClock> clocks;
  VectorClock callers;
};

Order& order() {
  static auto& all = *new Order;  // never destroyed: tensors may outlive static objects
  return all;
}

std::string name_of(const Stream& stream) {
  return to_string(stream.device) + (stream.id == Stream::kCopies ? " (copies)" : "");
}

/// Lets `queue` wait for call `ticket` of another queue.
void push_wait(CallQueue& queue, CallQueue* other, Ticket ticket) {
  queue.push(nullptr, [other, ticket] { other->wait(ticket); });
}

bool conflict(const Use& earlier, const Access& now) { return earlier.writes || now.writes; }

/// Called with the mutex held.
void order_after(const Use& earlier, const char* name, CallQueue& queue, VectorClock& clock, OrderedBy ordered_by) {
  if (clock.of(earlier.queue) >= earlier.ticket) {
    return;
  }
  STAGECOACH_CHECK(ordered_by == OrderedBy::library || earlier.is_ordered,
                   "race: {} on {} uses memory that {} on {} {}, and nothing orders the two; record an event after the "
                   "first, and let the stream of the second wait for it",
                   name, name_of(queue.stream()), earlier.name, name_of(earlier.queue->stream()),
                   earlier.writes ? "writes" : "reads");
  push_wait(queue, earlier.queue, earlier.ticket);
  clock.include(earlier.queue, earlier.ticket);
}

/// Keeps what later calls may conflict with: a write is after all uses before it, so it replaces them.
void note(std::vector<Use>& uses, const Use& use) {
  if (use.writes) {
    uses.clear();
  } else {
    std::erase_if(uses, [&](const Use& earlier) { return !earlier.writes && earlier.queue == use.queue; });
  }
  uses.push_back(use);
}

}  // namespace

Ticket VectorClock::of(const CallQueue* queue) const {
  const auto found = std::find_if(last_.begin(), last_.end(), [&](const auto& entry) { return entry.first == queue; });
  return found == last_.end() ? 0 : found->second;
}

void VectorClock::include(CallQueue* queue, Ticket ticket) {
  for (auto& [known, last] : last_) {
    if (known == queue) {
      last = std::max(last, ticket);
      return;
    }
  }
  last_.emplace_back(queue, ticket);
}

void VectorClock::include(const VectorClock& other) {
  for (const auto& [queue, ticket] : other.last_) {
    include(queue, ticket);
  }
}

void enqueue(const Stream& stream, const char* name, std::span<const Access> accesses, OrderedBy ordered_by,
             std::function<void()> call) {
  CallQueue& queue = call_queue(stream);
  const std::lock_guard lock(order().mutex);
  VectorClock& clock = order().clocks[&queue];
  clock.include(order().callers);
  for (const Access& access : accesses) {
    for (const Use& earlier : access.block->uses) {
      if (earlier.queue != &queue && conflict(earlier, access)) {
        order_after(earlier, name, queue, clock, ordered_by);
      }
    }
  }
  std::size_t bytes = 0;
  for (const Access& access : accesses) {
    access.block->uses.reserve(access.block->uses.size() + 1);  // a call without a note of its uses would race
    bytes += access.writes ? access.bytes : 0;
  }
  const Ticket ticket = queue.push(name, std::move(call), bytes);
  for (const Access& access : accesses) {
    note(access.block->uses, {&queue, ticket, name, access.writes, ordered_by == OrderedBy::library});
  }
}

void wait_for_uses(Block& block, bool also_reads) {
  std::vector<Use> uses;
  {
    const std::lock_guard lock(order().mutex);
    uses = block.uses;
  }
  for (const Use& use : uses) {
    if (use.writes || also_reads) {
      use.queue->wait(use.ticket);
      const std::lock_guard lock(order().mutex);
      order().callers.include(use.queue, use.ticket);
    }
  }
}

std::shared_ptr<const QueuePoint> mark_point(const Stream& stream) {
  CallQueue& queue = call_queue(stream);
  auto point = std::make_shared<QueuePoint>();
  const std::lock_guard lock(order().mutex);
  point->queue = &queue;
  point->ticket = queue.last();
  point->clock = order().clocks[&queue];
  point->clock.include(order().callers);
  point->clock.include(&queue, point->ticket);
  return point;
}

void wait_in_stream(const QueuePoint& point, const Stream& stream) {
  CallQueue& queue = call_queue(stream);
  if (&queue == point.queue) {
    return;
  }
  const std::lock_guard lock(order().mutex);
  push_wait(queue, point.queue, point.ticket);
  order().clocks[&queue].include(point.clock);
}

void wait_for_point(const QueuePoint& point) {
  point.queue->wait(point.ticket);
  const std::lock_guard lock(order().mutex);
  order().callers.include(point.clock);
}

}  // namespace stagecoach
