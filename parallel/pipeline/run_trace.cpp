#include "parallel/pipeline/run_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <sstream>
#include <string_view>

#include "parallel/pipeline/gather.h"
#include "parallel/schedule/predicted_trace.h"

namespace stagecoach {
namespace {

/// Returns the times in seconds, one per line, at which this rank began each step; empty unless it has the first stage.
std::string step_starts_text(const Trace& trace) {
  const std::string first = to_string(Action{Operation::forward, 0, 0});
  std::string text;
  for (const Trace::Event& event : trace.events()) {
    if (std::string_view(event.category) == "action" && event.label == first) {
      fmt::format_to(std::back_inserter(text), "{}\n", event.start);
    }
  }
  return text;
}

}  // namespace

TracePrediction prediction_of(const Schedule& schedule, const Simulation& simulation) {
  return {.ranks = schedule.rank_count(), .events = [schedule, simulation](const std::vector<double>& starts) {
            return predicted_events(schedule, simulation, starts);
          }};
}

std::string gather_trace(Communicator& comm, const Trace& mine, const std::optional<TracePrediction>& predicted) {
  std::vector<std::string> parts = gather_texts(comm, mine.events_json());
  const std::vector<std::string> message_ends = gather_texts(comm, mine.message_ends_text());
  const std::vector<std::string> step_starts = gather_texts(comm, step_starts_text(mine));
  if (comm.rank() != 0) {
    return "";
  }
  Trace messages;
  for (const std::string& ends : message_ends) {
    messages.add_message_ends(ends);
  }
  parts.push_back(messages.messages_json());
  if (predicted) {
    std::vector<double> starts;
    for (int rank = 0; rank < predicted->ranks; ++rank) {
      std::istringstream in(step_starts[static_cast<std::size_t>(rank)]);
      std::copy(std::istream_iterator<double>(in), {}, std::back_inserter(starts));
    }
    const std::vector<std::string> events = predicted->events(starts);
    parts.insert(parts.end(), events.begin(), events.end());
  }
  return trace_json(parts);
}

}  // namespace stagecoach
