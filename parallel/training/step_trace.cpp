#include "parallel/training/step_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <map>
#include <string>
#include <string_view>
#include <utility>
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

StepTrace::StepTrace(Communicator& comm, const std::vector<Device>& devices, const RunOptions& options,
                     std::shared_ptr<RankPool> pool)
    : comm_(comm), options_(options), pool_(std::move(pool)) {
  if (options.profile) {
    trace_->wait_for(comm.device());
  }
  attach();
  for (const Device& device : devices) {
    const int rank = pool_ == nullptr ? comm.rank() : static_cast<int>(&device - devices.data());
    trace_->count_memory(
        "memory of " + (pool_ != nullptr || devices.size() == 1 ? fmt::format("rank {}", rank) : to_string(device)),
        device);
  }
}

StepTrace::~StepTrace() {
  if (trace_ != nullptr) {
    detach();
  }
}

void StepTrace::attach() {
  if (pool_ != nullptr) {
    pool_->run([&](Rank& rank) { trace_->attach(rank.index, [&clock = rank.comm.clock()] { return clock.now(); }); });
    trace_->attach(0, [clock = pool_->clock()] { return clock->now(); });
  } else if (comm_.size() > 1 || comm_.clock().kind() != ClockKind::wall) {
    trace_->attach(comm_.rank(), [&clock = comm_.clock()] { return clock.now(); });
  } else {
    trace_->attach(0);
  }
}

void StepTrace::detach() {
  Trace::detach();
  if (pool_ != nullptr) {
    try {
      pool_->run([](Rank&) { Trace::detach(); });
    } catch (const std::exception&) {
      // The ranks have ended after an error, which was reported.
    }
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
  for (int rank = comm_.rank(); rank < comm_.rank() + (pool_ == nullptr ? 1 : pool_->ranks()); ++rank) {
    trace_->add(step_span(step_, rank, now));
  }
  step_.start = now;
  ++step_.number;
  if (++steps_ == kSteps) {
    detach();
  }
}

void StepTrace::finish(RunFolder& folder, KeepAlive& keep_alive, const Predictor& predictor) {
  if (trace_ == nullptr) {
    return;
  }
  detach();
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
