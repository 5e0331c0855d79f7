#include "parallel/schedule/predicted_trace.h"

#include <fmt/format.h>

#include <cstddef>
#include <optional>

#include "core/trace.h"
#include "parallel/schedule/grid.h"
#include "parallel/schedule/lower.h"

namespace stagecoach {
namespace {

/// Writes a simulated step, which begins at `start`, to a trace.
class StepWriter {
 public:
  StepWriter(const Schedule& schedule, const Simulation& simulation, std::size_t step, double start, Trace& trace)
      : schedule_(schedule), simulation_(simulation), step_(step), start_(start), trace_(trace), arrivals_(schedule) {
    for_each_action(schedule, [&](std::size_t rank, std::size_t action_index, const Action& action) {
      if (is_receive(action.operation)) {
        arrivals_.at(action) = simulation.timeline[rank][action_index].arrival;
      }
    });
  }

  void write() {
    for (int rank = 0; rank < schedule_.rank_count(); ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      double free = 0;
      for (std::size_t i = 0; i < schedule_.ranks[r].size(); ++i) {
        const Action& action = schedule_.ranks[r][i];
        const Simulation::Timed& times = simulation_.timeline[r][i];
        if (!is_communication(action.operation) && times.start > free) {
          add_span(rank, "wait", "wait", {free, times.start}, "wait for " + to_string(action));
        }
        write_action(rank, action, times);
        if (action.operation != Operation::reduce_grad || schedule_.batch > 0) {
          free = times.end;  // reductions at the end of a step overlap with other work
        }
      }
    }
  }

 private:
  void add_span(int rank, const char* name, const char* category, const Simulation::Timed& times, std::string label) {
    trace_.add(Trace::Event{name, category, rank, start_ + times.start, times.end - times.start, std::move(label)});
  }

  void write_action(int rank, const Action& action, const Simulation::Timed& times) {
    if (is_receive(action.operation)) {
      return;  // posting takes no time; the arrow ends where the message is used
    }
    add_span(rank, name_of(action.operation),
             is_send(action.operation)                    ? "message"
             : action.operation == Operation::reduce_grad ? "reduction"
                                                          : "action",
             times, to_string(action));
    const double start = start_ + times.start;
    if (is_send(action.operation)) {
      trace_.add(Trace::MessageEnd{channel(receive_of(action)), true, rank, start, 0, to_string(action)});
    } else if (const auto receive =
                   is_computation(action.operation) ? receive_before(schedule_, action) : std::nullopt) {
      trace_.add(Trace::MessageEnd{channel(*receive), false, rank, start, start_ + arrivals_.at(*receive)});
    }
  }

  /// Returns the channel of one message of the step.
  std::string channel(const Action& receive) const { return fmt::format("{}/{}", step_, to_string(receive)); }

  const Schedule& schedule_;
  const Simulation& simulation_;
  std::size_t step_;
  double start_;
  Trace& trace_;
  MessageGrid<double> arrivals_;
};

}  // namespace

std::string predicted_trace(const Schedule& schedule, const Simulation& simulation) {
  Trace trace;
  StepWriter(schedule, simulation, 0, 0, trace).write();
  return trace.to_json();
}

std::vector<std::string> predicted_events(const Schedule& schedule, const Simulation& simulation,
                                          const std::vector<double>& starts) {
  Trace trace(Trace::Process::predicted);
  for (std::size_t step = 0; step < starts.size(); ++step) {
    StepWriter(schedule, simulation, step, starts[step], trace).write();
  }
  return {trace.events_json(), trace.messages_json()};
}

}  // namespace stagecoach
