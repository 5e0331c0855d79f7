#include "core/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "core/asynchronous.h"
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

/// The id of a track in the file.
using Track = std::int64_t;
constexpr Track kLinks = 1'000'000;  // greater than any other track

std::string name_line(const char* what, int process, Track track, const std::string& name) {
  return fmt::format(R"({{"name":"{}","ph":"M","pid":{},"tid":{},"args":{{"name":"{}"}}}})", what, process, track,
                     name);
}

std::string track_name(int track, bool has_streams) {
  if (track >= Trace::kStreams) {
    const auto [device, stream] = std::div(track - Trace::kStreams, 2);
    return fmt::format("cpu:{}{}", device, stream == Stream::kCopies ? " copies" : "");
  }
  if (has_streams) {
    return "host";
  }
  return track < Trace::kBeside ? fmt::format("rank {}", track) : fmt::format("beside rank {}", track - Trace::kBeside);
}

std::string span_line(const std::string& name, const char* category, int process, Track track, double start,
                      double seconds, const std::string& operation = "") {
  return fmt::format(R"({{"name":"{}","cat":"{}","ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f}{}}})", name,
                     category, process, track, start * 1e6, seconds * 1e6,
                     operation.empty() ? "" : fmt::format(R"(,"args":{{"operation":"{}"}})", operation));
}

/// The two ends of a message.
struct Message {
  const Trace::MessageEnd* send = nullptr;
  const Trace::MessageEnd* use = nullptr;
};

/// Returns the messages of each link direction that have both ends, by sender and receiver, in order of arrival.
std::map<std::pair<int, int>, std::vector<Message>> messages_of_links(const std::vector<Trace::MessageEnd>& ends) {
  struct Channel {
    std::vector<const Trace::MessageEnd*> sends;
    std::vector<const Trace::MessageEnd*> uses;
  };
  std::map<std::string, Channel> channels;
  for (const Trace::MessageEnd& end : ends) {
    (end.is_send ? channels[end.channel].sends : channels[end.channel].uses).push_back(&end);
  }
  std::map<std::pair<int, int>, std::vector<Message>> links;
  for (const auto& [name, channel] : channels) {
    for (std::size_t i = 0; i < std::min(channel.sends.size(), channel.uses.size()); ++i) {
      const Message message{channel.sends[i], channel.uses[i]};
      if (!message.send->label.empty()) {
        links[{message.send->track % Trace::kBeside, message.use->track % Trace::kBeside}].push_back(message);
      }
    }
  }
  for (auto& [ranks, of_link] : links) {
    std::sort(of_link.begin(), of_link.end(),
              [](const Message& a, const Message& b) { return a.use->arrival < b.use->arrival; });
  }
  return links;
}

}  // namespace

static_assert(Trace::kBeside >= kMaxDevices && Trace::kStreams >= Trace::kBeside + kMaxDevices);

Trace::Trace(Process process) : process_(process), start_(std::chrono::steady_clock::now()) {}

void Trace::attach(int track, std::function<double()> clock) { attached = {this, track, std::move(clock)}; }

Trace::~Trace() { finish_queued_calls(); }

void Trace::detach() { attached = {}; }

Trace* Trace::of_this_thread() { return attached.trace; }

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

void Trace::add(const Event& event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(event);
}

void Trace::add(const MessageEnd& end) {
  const std::lock_guard lock(mutex_);
  message_ends_.push_back(end);
}

std::string Trace::events_json() const {
  const std::lock_guard lock(mutex_);
  const int process = static_cast<int>(process_);
  std::vector<std::string> lines;
  if (process_ == Process::predicted) {  // otherwise there is one process, which needs no name
    lines.push_back(name_line("process_name", static_cast<int>(Process::measured), 0, "measured"));
    lines.push_back(name_line("process_name", process, 0, "predicted"));
  }
  const bool has_streams =
      std::any_of(events_.begin(), events_.end(), [](const Event& event) { return event.track >= Trace::kStreams; });
  std::set<int> named;
  for (const Event& event : events_) {
    const bool is_labelled = !event.label.empty();
    lines.push_back(span_line(is_labelled ? event.label : event.name, event.category, process, event.track, event.start,
                              event.seconds, is_labelled ? event.name : ""));
    if (named.insert(event.track).second) {
      lines.push_back(name_line("thread_name", process, event.track, track_name(event.track, has_streams)));
    }
  }
  return fmt::format("{}", fmt::join(lines, ",\n"));
}

std::string Trace::messages_json() const {
  const std::lock_guard lock(mutex_);
  const int process = static_cast<int>(process_);
  // Viewers match the two ends of an arrow by category and id, whatever the process.
  const char* category = process_ == Process::measured ? "message" : "predicted message";
  std::vector<std::string> lines;
  std::uint64_t id = 0;
  for (const auto& [ranks, messages] : messages_of_links(message_ends_)) {
    const Track link = kLinks + Track{ranks.first} * kBeside + ranks.second;
    lines.push_back(name_line("thread_name", process, link, fmt::format("link {} -> {}", ranks.first, ranks.second)));
    double end = 0;
    for (const auto& [send, use] : messages) {
      const double start = std::max(send->time, end);
      end = std::max(start, use->arrival);
      lines.push_back(span_line(send->label, "link", process, link, start, end - start));
      for (const MessageEnd* at : {send, use}) {
        lines.push_back(fmt::format(
            R"({{"name":"message","cat":"{}","ph":"{}",{}"id":{},"pid":{},"tid":{},"ts":{:.3f}}})", category,
            at->is_send ? "s" : "f", at->is_send ? "" : R"("bp":"e",)", id, process, at->track, at->time * 1e6));
      }
      ++id;
    }
  }
  return fmt::format("{}", fmt::join(lines, ",\n"));
}

std::string Trace::message_ends_text() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (const auto& [channel, is_send, track, time, arrival, label] : message_ends_) {
    fmt::format_to(std::back_inserter(text), "{} {:d} {} {} {} {}\n", channel, is_send, track, time, arrival, label);
  }
  return text;
}

void Trace::add_message_ends(const std::string& text) {
  std::istringstream in(text);
  for (MessageEnd end{}; in >> end.channel >> end.is_send >> end.track >> end.time >> end.arrival;) {
    in.get();  // the blank before the label
    std::getline(in, end.label);
    add(end);
  }
}

std::string trace_json(const std::vector<std::string>& parts) {
  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  const char* separator = "\n";
  for (const std::string& part : parts) {
    if (!part.empty()) {
      text += separator + part;
      separator = ",\n";
    }
  }
  return text + "\n]}\n";
}

void record_send(const std::string& channel) {
  if (Trace* trace = attached.trace) {
    std::string name;
    if (is_in_span()) {
      name = innermost->label_.empty() ? innermost->name_ : innermost->label_;
    }
    trace->add(Trace::MessageEnd{channel, true, attached.track, trace->now(), 0, name});
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
    start_ = trace_->now();
    outer_ = std::exchange(innermost, this);
  }
}

Span::~Span() {
  if (trace_ == nullptr) {
    return;
  }
  innermost = outer_;
  if (trace_ == attached.trace) {
    trace_->wait();
    trace_->add(Trace::Event{name_, category_, attached.track, start_, trace_->now() - start_, std::move(label_)});
  }
}

}  // namespace stagecoach
