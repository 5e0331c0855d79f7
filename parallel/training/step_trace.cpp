#include "parallel/training/step_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/uncounted_memory.h"
#include "parallel/pipeline/gather.h"

namespace stagecoach {
namespace {

struct Row {
  double seconds = 0;
  std::int64_t calls = 0;
};

/// Returns a table with one row per name and category, sorted by time in descending order, with the time per step and
/// the share. `steps`, at least 1, is the number of training steps in the trace. The time of nested spans counts twice;
/// the spans of a training step are not nested.
std::string profile_table(const Trace& trace, std::int64_t steps) {
  std::map<std::pair<std::string, std::string>, Row> rows;
  double total = 0;
  for (const Trace::Event& event : trace.events()) {
    const std::string_view category = event.category;
    if (category == "step" || category == "action" || category == "communication" || event.track >= Trace::kBeside) {
      continue;  // a whole step, a stage's forward or backward, or a collective, whose operations and waits have rows
                 // of their own; or a span beside the thread's own work
    }
    Row& row = rows[{event.name, event.category}];
    row.seconds += event.seconds();
    ++row.calls;
    total += event.seconds();
  }
  std::vector<std::pair<std::pair<std::string, std::string>, Row>> sorted(rows.begin(), rows.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  std::string table = fmt::format("Where the time went in the first {} steps\n  {:<20} {:<10} {:>6} {:>12} {:>7}\n",
                                  steps, "operation", "pass", "calls", "us per step", "share");
  for (const auto& [key, row] : sorted) {
    table += fmt::format("  {:<20} {:<10} {:>6} {:>12.1f} {:>6.1f}%\n", key.first, key.second, row.calls,
                         1e6 * row.seconds / static_cast<double>(steps), 100 * row.seconds / total);
  }
  return table;
}

}  // namespace

StepTrace::StepTrace(Communicator& comm, const std::vector<Device>& devices, const RunOptions& options)
    : comm_(comm), options_(options) {
  if (options.profile) {
    trace_->wait_for(comm.device());
  }
  if (comm.size() > 1 || comm.clock().kind() != ClockKind::wall) {
    trace_->attach(comm.rank(), [&clock = comm.clock()] { return clock.now(); });
  } else {
    trace_->attach(0);
  }
  for (const Device device : devices) {
    trace_->count_memory("memory of " + (devices.size() == 1 ? fmt::format("rank {}", comm.rank()) : to_string(device)),
                         device);
  }
}

void StepTrace::begin(std::int64_t epoch, std::int64_t number) {
  if (trace_ != nullptr) {
    first_ = step_ = {.start = trace_->now(), .epoch = epoch, .number = number};
  }
}

void StepTrace::add_step() {
  if (trace_ == nullptr || steps_ == kSteps) {
    return;
  }
  const double now = trace_->now();
  trace_->add(step_span(step_, comm_.rank(), now));
  step_.start = now;
  ++step_.number;
  if (++steps_ == kSteps) {
    Trace::detach();
  }
}

void StepTrace::finish(RunFolder& folder, KeepAlive& keep_alive, const Predictor& predictor) {
  if (trace_ == nullptr) {
    return;
  }
  Trace::detach();
  const UncountedMemory uncounted;  // the text's messages are no part of what training needs
  const std::string json =
      gather_trace(comm_, *trace_, first_, predictor.timeline ? predictor.timeline() : std::nullopt);
  if (folder.writes()) {
    keep_alive.during([&] { folder.save_trace(json); });
  }
  if (options_.profile && steps_ > 0) {
    const std::vector<std::string> tables = gather_texts(comm_, profile_table(*trace_, steps_));
    for (std::size_t rank = 0; rank < tables.size(); ++rank) {
      options_.print((comm_.size() > 1 ? fmt::format("Rank {}. ", rank) : "") + tables[rank]);
    }
  }
  trace_.reset();
}

}  // namespace stagecoach
