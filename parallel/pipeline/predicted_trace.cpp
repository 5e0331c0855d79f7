#include "parallel/pipeline/predicted_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <optional>
#include <utility>

#include "parallel/schedule/grid.h"
#include "parallel/schedule/lower.h"

namespace stagecoach {
namespace {

/// Writes a simulated step to a trace.
class StepWriter {
 public:
  StepWriter(const Schedule& schedule, const Simulation& simulation, const std::vector<double>& message_bytes,
             const std::vector<int>& ranks, TracedStep step, Trace& trace)
      : schedule_(schedule),
        simulation_(simulation),
        message_bytes_(message_bytes),
        ranks_(ranks),
        step_(step),
        trace_(trace),
        arrivals_(schedule) {
    for_each_action(schedule, [&](std::size_t rank, std::size_t action_index, const Action& action) {
      if (is_receive(action.operation)) {
        arrivals_.at(action) = simulation.timeline[rank][action_index].arrival;
      }
    });
  }

  void write() {
    for (std::size_t row = 0; row < ranks_.size(); ++row) {
      write(row);
    }
  }

 private:
  void write(std::size_t row) {
    const int rank = ranks_[row];
    TracedStep step = step_;
    double free = 0;
    double reduced = 0;  // reductions at the end of a step overlap with other work
    for (std::size_t i = 0; i < schedule_.ranks[row].size(); ++i) {
      const Action& action = schedule_.ranks[row][i];
      const Simulation::Timed& times = simulation_.timeline[row][i];
      if (action.operation == Operation::reduce_grad && schedule_.batch == 0) {
        add_span(rank + Trace::kBeside, name_of(action.operation), "reduction", times, to_string(action));
        reduced = times.end;
        continue;
      }
      if (!is_communication(action.operation) && times.start > free) {
        add_span(rank, "wait", "wait", {free, times.start}, "wait for " + to_string(action));
      }
      write_action(rank, action, times);
      free = times.end;
      if (action.operation == Operation::update) {
        end_steps(action, rank, free, step);
      }
    }
    if (schedule_.batch == 0) {
      end_step(row, free, reduced);
    }
  }

  /// Writes the update at the end of a step, which is not listed, and the step itself.
  void end_step(std::size_t row, double free, double reduced) {
    const int rank = ranks_[row];
    if (reduced > free) {
      add_span(rank, "wait", "wait", {free, reduced}, "wait for the reductions");
    }
    const double end = simulation_.ends[row];
    if (end > std::max(free, reduced)) {
      add_span(rank, name_of(Operation::update), "update", {std::max(free, reduced), end}, "");
    }
    trace_.add(step_span(step_, rank, step_.start + simulation_.seconds));
  }

  /// Writes the steps that end with a listed update: all batches since the last one, of which the first has the time.
  void end_steps(const Action& update, int rank, double end, TracedStep& step) {
    const int batches_per_update = schedule_.microbatches_per_update(update.stage) / schedule_.batch;
    const int first = update.microbatch * batches_per_update;
    const int last = std::min(first + batches_per_update, ceil_div(schedule_.microbatches, schedule_.batch));
    for (int batch = first; batch < last; ++batch) {
      trace_.add(step_span(step, rank, step_.start + end));
      step.start = step_.start + end;
      ++step.number;
    }
  }

  void add_span(int track, const char* name, const char* category, const Simulation::Timed& times, std::string label) {
    trace_.add(
        Trace::Event{name, category, track, step_.start + times.start, step_.start + times.end, std::move(label)});
  }

  void write_action(int rank, const Action& action, const Simulation::Timed& times) {
    if (is_receive(action.operation)) {
      return;  // posting takes no time; the arrow ends where the message is used
    }
    add_span(rank, name_of(action.operation),
             is_send(action.operation)                    ? "message"
             : action.operation == Operation::reduce_grad ? "reduction"
             : action.operation == Operation::update      ? "update"
                                                          : "action",
             times, to_string(action));
    const double start = step_.start + times.start;
    if (is_send(action.operation)) {
      const Action receive = receive_of(action);
      trace_.add(
          Trace::MessageEnd{channel(receive), true, rank, start, 0, to_string(action), bytes_of(receive, action)});
    } else if (const auto receive =
                   is_computation(action.operation) ? receive_before(schedule_, action) : std::nullopt) {
      trace_.add(Trace::MessageEnd{channel(*receive), false, rank, start, step_.start + arrivals_.at(*receive)});
    }
  }

  /// Returns the size of a message, or 0 if it is not known.
  std::size_t bytes_of(const Action& receive, const Action& send) const {
    const auto border = static_cast<std::size_t>(std::min(send.stage, receive.stage));
    return message_bytes_.empty() ? 0 : static_cast<std::size_t>(message_bytes_[border]);
  }

  /// Returns the channel of one message of the step.
  std::string channel(const Action& receive) const {
    return fmt::format("{}/{}/{}", ranks_.front(), step_.number, to_string(receive));
  }

  const Schedule& schedule_;
  const Simulation& simulation_;
  const std::vector<double>& message_bytes_;
  const std::vector<int>& ranks_;  // of the world, by row of the schedule
  TracedStep step_;
  Trace& trace_;
  MessageGrid<double> arrivals_;
};

}  // namespace

Trace::Event step_span(const TracedStep& step, int track, double end) {
  return {.name = "step",
          .category = "step",
          .track = track,
          .start = step.start,
          .end = end,
          .label = fmt::format("step {}", step.number),
          .args = fmt::format(R"("epoch":{},"step":{})", step.epoch, step.number)};
}

std::string predicted_trace(const Schedule& schedule, const Simulation& simulation,
                            const std::vector<double>& message_bytes) {
  Trace trace(Trace::Process::predicted);
  std::vector<int> ranks(schedule.ranks.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  StepWriter(schedule, simulation, message_bytes, ranks, {}, trace).write();
  return trace.to_json();
}

void add_predicted_steps(const Schedule& schedule, const Costs& costs, const std::vector<int>& ranks,
                         const std::vector<TracedStep>& steps, Trace& trace) {
  Schedule step_schedule = schedule;
  Simulation simulation = simulate(schedule, costs);
  double free = 0;  // when the prediction of the step before ends
  for (TracedStep step : steps) {
    if (step.microbatches != step_schedule.microbatches) {
      step_schedule = with_fewer_microbatches(schedule, std::min(step.microbatches, schedule.microbatches));
      simulation = simulate(step_schedule, costs);
    }
    step.start = std::max(step.start, free);
    free = step.start + simulation.seconds;
    StepWriter(step_schedule, simulation, costs.bytes, ranks, step, trace).write();
  }
}

}  // namespace stagecoach
