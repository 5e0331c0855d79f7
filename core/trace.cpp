#include "core/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <sstream>
#include <string_view>
#include <utility>

#include "core/allocator.h"
#include "core/asynchronous.h"
#include "core/base/error.h"
#include "core/stream.h"

namespace stagecoach {
namespace {

/// What the calling thread records.
struct Attachment {
  Trace* trace = nullptr;
  int track = 0;
  std::function<double()> clock = {};
};
thread_local Attachment attached;
thread_local const Span* innermost = nullptr;

}  // namespace

static_assert(Trace::kBeside >= kMaxDevices && Trace::kStreams >= Trace::kBeside + kMaxDevices);

Trace::Trace(Process process) : process_(process), start_(std::chrono::steady_clock::now()) {}

void Trace::attach(int track, std::function<double()> clock) { attached = {this, track, std::move(clock)}; }

Trace::~Trace() { finish_queued_calls(); }

void Trace::detach() { attached = {}; }

Trace* Trace::current() { return attached.trace; }

int Trace::track_of_this_thread() { return attached.track; }

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
  if (attached.trace == this && attached.clock) {
    return attached.clock();
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

int Trace::track_beside(int track, const void* worker) {
  const std::lock_guard lock(mutex_);
  std::vector<const void*>& workers = workers_[track];
  auto found = std::find(workers.begin(), workers.end(), worker);
  if (found == workers.end()) {
    constexpr int kMostWorkers = kStreams / kBeside - 2;
    STAGECOACH_CHECK(std::ssize(workers) < kMostWorkers, "trace: expected at most {} threads beside a rank, got more",
                     kMostWorkers);
    found = workers.insert(found, worker);
  }
  return track + kBeside * static_cast<int>(found - workers.begin() + 1);
}

/// Threads beside a rank have clocks of their own, so only the rank's thread counts.
void Trace::sample_memory() {
  if (attached.trace != this || attached.track >= kBeside) {
    return;
  }
  for (auto& [name, device, samples] : counters_) {
    const std::size_t bytes = allocator(device).stats().current_bytes;
    if (samples.empty() || samples.back().second != bytes) {
      const std::lock_guard lock(mutex_);
      samples.emplace_back(now(), bytes);
    }
  }
}

void Trace::add(const Event& event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(event);
}

void Trace::add(const MessageEnd& end) {
  const std::lock_guard lock(mutex_);
  message_ends_.push_back(end);
}

std::string Trace::message_ends_text() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (const auto& [channel, is_send, track, time, arrival, label, bytes] : message_ends_) {
    fmt::format_to(std::back_inserter(text), "{} {:d} {} {} {} {} {}\n", channel, is_send, track, time, arrival, bytes,
                   label);
  }
  return text;
}

void Trace::add_message_ends(const std::string& text) {
  std::istringstream in(text);
  for (MessageEnd end{}; in >> end.channel >> end.is_send >> end.track >> end.time >> end.arrival >> end.bytes;) {
    in.get();  // the blank before the label
    std::getline(in, end.label);
    add(end);
  }
}

void record_send(const std::string& channel, std::size_t bytes) {
  if (Trace* trace = attached.trace) {
    std::string name;
    if (is_in_span()) {
      name = innermost->label_.empty() ? innermost->name_ : innermost->label_;
    }
    trace->add(Trace::MessageEnd{channel, true, attached.track, trace->now(), 0, name, bytes});
  }
}

std::string Trace::label_of_this_thread() {
  const Span* span = innermost;
  while (span != nullptr && span->label_.empty()) {
    span = span->outer_;
  }
  return span == nullptr ? "" : span->label_;
}

bool is_in_span() { return attached.trace != nullptr && innermost != nullptr && innermost->trace_ == attached.trace; }

void record_use(const std::string& channel, double arrival) {
  if (Trace* trace = attached.trace) {
    trace->add(Trace::MessageEnd{channel, false, attached.track, trace->now(), arrival});
  }
}

Span::Span(const char* name, const char* category) : name_(name), category_(category), trace_(attached.trace) {
  if (trace_ != nullptr) {
    outer_ = std::exchange(innermost, this);
    if (outer_ == nullptr) {
      trace_->sample_memory();
    }
    start_ = trace_->now();
  }
}

Span::~Span() {
  if (trace_ == nullptr) {
    return;
  }
  innermost = outer_;
  if (trace_ == attached.trace) {
    trace_->wait();
    const double end = trace_->now();
    if (end > start_ || category_ != std::string_view("wait")) {  // a clock that computes times knows empty waits
      trace_->add(Trace::Event{name_, category_, attached.track, start_, end, std::move(label_),
                               bytes_ == 0 ? "" : fmt::format(R"("bytes":{})", bytes_)});
    }
    if (outer_ == nullptr) {
      trace_->sample_memory();
    }
  }
}

}  // namespace stagecoach
