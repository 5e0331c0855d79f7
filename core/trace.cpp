#include "core/trace.h"

#include <fmt/format.h>

#include <iterator>
#include <set>
#include <utility>

#include "core/stream.h"

namespace stagecoach {
namespace {

thread_local Trace* current = nullptr;
thread_local int current_track = 0;
thread_local std::function<double()> current_clock;

}  // namespace

static_assert(Trace::kBeside >= kMaxDevices);

Trace::Trace() : start_(std::chrono::steady_clock::now()) {}

void Trace::attach(int track, std::function<double()> clock) {
  current = this;
  current_track = track;
  current_clock = std::move(clock);
}

void Trace::detach() {
  current = nullptr;
  current_clock = {};
}

std::vector<Trace::Event> Trace::events() const {
  const std::lock_guard lock(mutex_);
  return events_;
}

void Trace::wait() const noexcept try {
  if (awaited_) {
    synchronize({*awaited_, Stream::kCompute});
  }
} catch (const std::exception&) {
}

double Trace::now() const {
  if (current == this && current_clock) {
    return current_clock();
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void Trace::add(const Event& event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(event);
}

void Trace::add(const ArrowEnd& end) {
  const std::lock_guard lock(mutex_);
  arrows_.push_back(end);
}

std::string Trace::events_json() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> lines;
  std::set<int> named;
  for (const Event& event : events_) {
    const bool is_labelled = !event.label.empty();
    lines.push_back(fmt::format(R"({{"name":"{}","cat":"{}","ph":"X","pid":0,"tid":{},"ts":{:.3f},"dur":{:.3f}{}}})",
                                is_labelled ? event.label : event.name, event.category, event.track, event.start * 1e6,
                                event.seconds * 1e6,
                                is_labelled ? fmt::format(R"(,"args":{{"operation":"{}"}})", event.name) : ""));
    if (named.insert(event.track).second) {
      const bool is_beside = event.track >= kBeside;
      lines.push_back(fmt::format(R"({{"name":"thread_name","ph":"M","pid":0,"tid":{},"args":{{"name":"{} {}"}}}})",
                                  event.track, is_beside ? "beside rank" : "rank",
                                  is_beside ? event.track - kBeside : event.track));
    }
  }
  for (const ArrowEnd& end : arrows_) {
    lines.push_back(
        fmt::format(R"({{"name":"message","cat":"message","ph":"{}",{}"id":{},"pid":0,"tid":{},"ts":{:.3f}}})",
                    end.begins ? "s" : "f", end.begins ? "" : R"("bp":"e",)", end.id, end.track, end.time * 1e6));
  }
  return fmt::format("{}", fmt::join(lines, ",\n"));
}

std::string trace_json(const std::vector<std::string>& ranks) {
  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  const char* separator = "\n";
  for (const std::string& events : ranks) {
    if (!events.empty()) {
      text += separator + events;
      separator = ",\n";
    }
  }
  return text + "\n]}\n";
}

void record_beside(const char* name, const char* category, double start, double seconds) {
  if (current != nullptr) {
    current->add(Trace::Event{name, category, current_track + Trace::kBeside, start, seconds});
  }
}

void record_arrow(std::uint64_t number, int rank, bool begins) {
  if (current != nullptr) {
    const auto group = static_cast<std::uint64_t>(current_track - rank);
    current->add(Trace::ArrowEnd{number * Trace::kBeside + group, begins, current_track, current->now()});
  }
}

Span::Span(const char* name, const char* category) : name_(name), category_(category), trace_(current) {
  if (trace_ != nullptr) {
    start_ = trace_->now();
  }
}

Span::~Span() {
  if (trace_ != nullptr && trace_ == current) {
    trace_->wait();
    trace_->add(Trace::Event{name_, category_, current_track, start_, trace_->now() - start_, std::move(label_)});
  }
}

}  // namespace stagecoach
