#include "parallel/pipeline/run_trace.h"

#include <fmt/format.h>

#include <iterator>
#include <map>
#include <sstream>
#include <string_view>
#include <utility>

#include "parallel/pipeline/gather.h"

namespace stagecoach {
namespace {

/// Returns a line for each forward of the first stage that this rank has run: its micro-batch, and its time in seconds.
std::string first_forwards_text(const Trace& trace) {
  std::string text;
  for (const Trace::Event& event : trace.events()) {
    if (std::string_view(event.category) == "action" && event.label.starts_with("0F")) {
      fmt::format_to(std::back_inserter(text), "{} {}\n", event.label.substr(2), event.start);
    }
  }
  return text;
}

/// Returns the steps of a pipeline from the texts of its ranks. Step k has run the micro-batches with more than k
/// forwards.
std::vector<TracedStep> steps_of(const std::vector<int>& pipeline, const std::vector<std::string>& first_forwards,
                                 TracedStep step) {
  std::map<int, std::vector<double>> times;  // by micro-batch
  for (const int rank : pipeline) {
    std::map<int, std::vector<double>> rank_times;
    std::istringstream in(first_forwards[static_cast<std::size_t>(rank)]);
    double time = 0;
    for (int microbatch = 0; in >> microbatch >> time;) {
      rank_times[microbatch].push_back(time);
    }
    times.merge(std::move(rank_times));  // replicas of a model run the same micro-batches: the first one counts
  }
  std::vector<TracedStep> steps;
  for (const double start : times[0]) {
    step.start = start;
    step.microbatches = 0;
    for (const auto& [microbatch, starts] : times) {
      step.microbatches += starts.size() > steps.size() ? 1 : 0;
    }
    steps.push_back(step);
    ++step.number;
  }
  return steps;
}

}  // namespace

TracePrediction prediction_of(const Schedule& schedule, const Costs& costs, std::vector<std::vector<int>> pipelines) {
  return {std::move(pipelines),
          [schedule, costs](const std::vector<int>& ranks, const std::vector<TracedStep>& steps, Trace& trace) {
            add_predicted_steps(schedule, costs, ranks, steps, trace);
          }};
}

std::string gather_trace(Communicator& comm, const Trace& mine, const TracedStep& first,
                         const std::optional<TracePrediction>& predicted) {
  std::vector<std::string> parts = gather_texts(comm, mine.events_json());
  const std::vector<std::string> message_ends = gather_texts(comm, mine.message_ends_text());
  const std::vector<std::string> first_forwards = gather_texts(comm, first_forwards_text(mine));
  if (comm.rank() != 0) {
    return "";
  }
  Trace messages;
  for (const std::string& ends : message_ends) {
    messages.add_message_ends(ends);
  }
  parts.push_back(messages.messages_json());
  if (predicted) {
    Trace trace(Trace::Process::predicted);
    for (const std::vector<int>& pipeline : predicted->pipelines) {
      predicted->add_steps(pipeline, steps_of(pipeline, first_forwards, first), trace);
    }
    parts.insert(parts.end(), {trace.events_json(), trace.messages_json()});
  }
  return trace_json(parts);
}

}  // namespace stagecoach
