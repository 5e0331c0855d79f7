// A schedule in Chrome's trace format; the function is declared in draw.h.

#include <cstdint>
#include <optional>

#include "core/trace.h"
#include "parallel/schedule/draw.h"
#include "parallel/schedule/lower.h"

namespace stagecoach {
namespace {

/// The number of a message, the same at both of its ends.
std::uint64_t arrow_of(const Schedule& schedule, const Action& receive) {
  const auto pair = static_cast<std::uint64_t>(receive.stage) * static_cast<std::uint64_t>(schedule.microbatches) +
                    static_cast<std::uint64_t>(receive.microbatch);
  return 2 * pair + (receive.operation == Operation::receive_backward ? 1 : 0);
}

void add_action(const Schedule& schedule, const Action& action, int rank, const Simulation::Timed& times,
                Trace& trace) {
  const auto [start, end] = times;
  if (is_receive(action.operation)) {
    return;  // posting takes no time; the arrow ends where the message is used
  }
  const auto add_span = [&](const char* category) {
    trace.add(Trace::Event{name_of(action.operation), category, rank, start, end - start, to_string(action)});
  };
  if (is_send(action.operation)) {
    add_span("message");  // an arrow begins within a span, so there is one also where a send takes no time
    trace.add(Trace::ArrowEnd{arrow_of(schedule, receive_of(action)), true, rank, start});
    return;
  }
  add_span(action.operation == Operation::reduce_grad ? "reduction" : "action");
  if (const auto receive = is_computation(action.operation) ? receive_before(schedule, action) : std::nullopt) {
    trace.add(Trace::ArrowEnd{arrow_of(schedule, *receive), false, rank, start});
  }
}

}  // namespace

std::string draw_trace(const Schedule& schedule, const Simulation& simulation) {
  Trace trace;
  for (int rank = 0; rank < schedule.rank_count(); ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    double free = 0;
    for (std::size_t i = 0; i < schedule.ranks[r].size(); ++i) {
      const Action& action = schedule.ranks[r][i];
      const Simulation::Timed& times = simulation.timeline[r][i];
      if (!is_communication(action.operation) && times.start > free) {
        trace.add(Trace::Event{"wait", "wait", rank, free, times.start - free, "wait for " + to_string(action)});
      }
      add_action(schedule, action, rank, times, trace);
      if (action.operation != Operation::reduce_grad || schedule.batch > 0) {
        free = times.end;  // at the end of a step reductions travel beside other work
      }
    }
  }
  return trace.to_json();
}

}  // namespace stagecoach
