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

std::string Trace::events_json() const {
  std::string text;
  const char* separator = "";
  std::set<int> named;
  for (const Event& event : events()) {
    fmt::format_to(
        std::back_inserter(text),
        "{}{{\"name\":\"{}\",\"cat\":\"{}\",\"ph\":\"X\",\"pid\":0,\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f}}}",
        separator, event.name, event.category, event.track, event.start * 1e6, event.seconds * 1e6);
    separator = ",\n";
    if (event.track >= kBeside && named.insert(event.track).second) {
      fmt::format_to(
          std::back_inserter(text),
          ",\n{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":{},\"args\":{{\"name\":\"beside {}\"}}}}",
          event.track, event.track - kBeside);
    }
  }
  return text;
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
    current->add({name, category, current_track + Trace::kBeside, start, seconds});
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
    trace_->add({name_, category_, current_track, start_, trace_->now() - start_});
  }
}

}  // namespace stagecoach
