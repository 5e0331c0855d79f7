// A schedule in Chrome's trace format; the function stands in draw.h.

#include <fmt/format.h>

#include <iterator>

#include "core/trace.h"
#include "parallel/schedule/draw.h"
#include "parallel/schedule/lower.h"

namespace stagecoach {
namespace {

constexpr double kMicroseconds = 1e6;  // in a second

/// The number of a message, the same at both of its ends.
std::size_t flow_of(const Schedule& schedule, const Action& receive) {
  const auto pair = static_cast<std::size_t>(receive.stage) * static_cast<std::size_t>(schedule.microbatches) +
                    static_cast<std::size_t>(receive.microbatch);
  return 2 * pair + (receive.operation == Operation::receive_backward ? 1 : 0);
}

class TraceText {
 public:
  explicit TraceText(const Schedule& schedule) : schedule_(schedule) {}

  void name_track(std::size_t track) {
    add(R"({{"name":"thread_name","ph":"M","pid":0,"tid":{0},"args":{{"name":"rank {0}"}}}})", track);
  }
  void span(const std::string& name, const char* category, std::size_t track, double start, double end) {
    add(R"({{"name":"{}","cat":"{}","ph":"X","pid":0,"tid":{},"ts":{:.3f},"dur":{:.3f}}})", name, category, track,
        kMicroseconds * start, kMicroseconds * (end - start));
  }
  /// One end of the arrow from a send to the computation that uses the message.
  void arrow(const Action& receive, bool begins, std::size_t track, double time) {
    add(R"({{"name":"message","cat":"message","ph":"{}",{}"id":{},"pid":0,"tid":{},"ts":{:.3f}}})", begins ? "s" : "f",
        begins ? "" : R"("bp":"e",)", flow_of(schedule_, receive), track, kMicroseconds * time);
  }
  std::string text() const { return events_; }

 private:
  template <class... Arguments>
  void add(fmt::format_string<Arguments...> event, Arguments&&... arguments) {
    events_ += events_.empty() ? "" : ",\n";
    fmt::format_to(std::back_inserter(events_), event, std::forward<Arguments>(arguments)...);
  }

  const Schedule& schedule_;
  std::string events_;
};

void draw_action(const Schedule& schedule, const Action& action, std::size_t rank, const Simulation::Timed& times,
                 TraceText& trace) {
  const auto [start, end] = times;
  if (is_receive(action.operation)) {
    return;  // posting takes no time; the arrow ends where the message is used
  }
  if (is_send(action.operation)) {
    // An arrow begins within a span, so a send has one also where it takes no time.
    trace.span(to_string(action), end > start ? "wait" : "send", rank, start, end);
    trace.arrow(receive_of(action), true, rank, start);
    return;
  }
  trace.span(to_string(action), is_communication(action.operation) ? "reduction" : "simulated", rank, start, end);
  if (const auto receive = is_computation(action.operation) ? receive_before(schedule, action) : std::nullopt) {
    trace.arrow(*receive, false, rank, start);
  }
}

}  // namespace

std::string draw_trace(const Schedule& schedule, const Simulation& simulation) {
  TraceText trace(schedule);
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    trace.name_track(r);
    double free = 0;
    for (std::size_t i = 0; i < schedule.ranks[r].size(); ++i) {
      const Action& action = schedule.ranks[r][i];
      const Simulation::Timed& times = simulation.timeline[r][i];
      if (!is_communication(action.operation) && times.start > free) {
        trace.span("wait for " + to_string(action), "wait", r, free, times.start);
      }
      draw_action(schedule, action, r, times, trace);
      if (action.operation != Operation::reduce_grad || schedule.batch > 0) {
        free = times.end;  // at the end of a step reductions travel beside other work
      }
    }
  }
  return trace_json({trace.text()});
}

}  // namespace stagecoach
