#include "parallel/data_parallel/timeline_trace.h"

#include <algorithm>

#include "core/trace.h"

namespace stagecoach {
namespace {

/// Writes the step of one rank, which begins at `start`.
void write_step(const Timeline& timeline, int rank, double start, Trace& trace) {
  double free = 0;
  const auto wait_until = [&](double time, const std::string& what) {
    if (time > free) {
      trace.add(Trace::Event{"wait", "wait", rank, start + free, time - free, "wait for " + what});
    }
  };
  for (const Bar& bar : timeline.bars) {
    const double seconds = bar.end - bar.begin;
    if (bar.kind == Bar::Kind::communication) {
      trace.add(
          Trace::Event{"communication", "communication", rank + Trace::kBeside, start + bar.begin, seconds, bar.name});
      continue;
    }
    if (rank == 0 || bar.ranks == 1) {  // otherwise only rank 0 updates, and the others wait
      wait_until(bar.begin, bar.name);
      const bool is_update = bar.kind == Bar::Kind::update;
      trace.add(Trace::Event{is_update ? "optimizer" : "compute", is_update ? "update" : "action", rank,
                             start + bar.begin, seconds, bar.name});
      free = bar.end;
    }
  }
  wait_until(timeline.seconds, "the end of the step");
}

}  // namespace

std::vector<std::string> predicted_events(const Timeline& timeline, int ranks, const std::vector<double>& starts) {
  Trace trace(Trace::Process::predicted);
  const auto forward =
      std::find_if(timeline.bars.begin(), timeline.bars.end(), [](const Bar& bar) { return bar.name == "forward"; });
  const double before = forward == timeline.bars.end() ? 0 : forward->begin;
  for (const double start : starts) {
    for (int rank = 0; rank < ranks; ++rank) {
      write_step(timeline, rank, std::max(start - before, 0.0), trace);
    }
  }
  return {trace.events_json()};
}

}  // namespace stagecoach
