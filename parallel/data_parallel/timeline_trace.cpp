#include "parallel/data_parallel/timeline_trace.h"

#include <algorithm>
#include <string>

namespace stagecoach {
namespace {

/// Writes the step of one rank.
void write_step(const Timeline& timeline, int rank, const TracedStep& step, Trace& trace) {
  const double start = step.start;
  double free = 0;
  const auto wait_until = [&](double time, const std::string& what) {
    if (time > free) {
      trace.add(Trace::Event{"wait", "wait", rank, start + free, start + time, "wait for " + what});
    }
  };
  for (const Bar& bar : timeline.bars) {
    if (bar.kind == Bar::Kind::communication) {
      trace.add(Trace::Event{"communication", "communication", rank + Trace::kBeside, start + bar.begin,
                             start + bar.end, bar.name});
      continue;
    }
    if (rank == 0 || bar.ranks == 1) {  // otherwise only rank 0 updates, and the others wait
      wait_until(bar.begin, bar.name);
      const bool is_update = bar.kind == Bar::Kind::update;
      trace.add(Trace::Event{is_update ? "optimizer" : "compute", is_update ? "update" : "action", rank,
                             start + bar.begin, start + bar.end, bar.name});
      free = bar.end;
    }
  }
  wait_until(timeline.seconds, "the end of the step");
  trace.add(step_span(step, rank, start + timeline.seconds));
}

}  // namespace

void add_predicted_steps(const Timeline& timeline, const std::vector<int>& ranks, const std::vector<TracedStep>& steps,
                         Trace& trace) {
  double free = 0;  // when the prediction of the step before ends
  for (TracedStep step : steps) {
    step.start = std::max(step.start, free);
    free = step.start + timeline.seconds;
    for (const int rank : ranks) {
      write_step(timeline, rank, step, trace);
    }
  }
}

}  // namespace stagecoach
