#include "core/trace.h"

#include <fmt/format.h>

#include <algorithm>
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

thread_local Trace* current = nullptr;
thread_local int current_track = 0;
thread_local std::function<double()> current_clock;
const std::string kNoLabel;
thread_local const std::string* current_label = &kNoLabel;

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
  bool is_whole() const { return send != nullptr && use != nullptr; }
};

/// Returns the messages of each link direction that have both ends, by sender and receiver, in order of arrival.
std::map<std::pair<int, int>, std::vector<Message>> messages_of_links(const std::vector<Trace::MessageEnd>& ends) {
  std::map<std::uint64_t, Message> messages;
  for (const Trace::MessageEnd& end : ends) {
    (end.is_send ? messages[end.id].send : messages[end.id].use) = &end;
  }
  std::map<std::pair<int, int>, std::vector<Message>> links;
  for (const auto& [id, message] : messages) {
    if (message.is_whole()) {
      links[{message.send->track, message.use->track}].push_back(message);
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

void Trace::attach(int track, std::function<double()> clock) {
  current = this;
  current_track = track;
  current_clock = std::move(clock);
}

Trace::~Trace() { finish_queued_calls(); }

Trace* Trace::of_this_thread() { return current; }
const std::string& Trace::label_of_this_thread() { return *current_label; }

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
            at->is_send ? "s" : "f", at->is_send ? "" : R"("bp":"e",)", at->id, process, at->track, at->time * 1e6));
      }
    }
  }
  return fmt::format("{}", fmt::join(lines, ",\n"));
}

std::string Trace::message_ends_text() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (const auto& [id, is_send, track, time, arrival, label] : message_ends_) {
    fmt::format_to(std::back_inserter(text), "{} {:d} {} {} {} {}\n", id, is_send, track, time, arrival,
                   label.empty() ? "-" : label);
  }
  return text;
}

void Trace::add_message_ends(const std::string& text) {
  std::istringstream in(text);
  for (MessageEnd end{}; in >> end.id >> end.is_send >> end.track >> end.time >> end.arrival >> end.label;) {
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

void record_beside(const char* name, const char* category, double start, double seconds) {
  if (current != nullptr) {
    current->add(Trace::Event{name, category, current_track + Trace::kBeside, start, seconds});
  }
}

namespace {

/// Returns an id that differs between messages with the same number in different groups.
std::uint64_t message_id(std::uint64_t number, int rank) {
  return number * Trace::kBeside + static_cast<std::uint64_t>(current_track - rank);
}

}  // namespace

void record_send(std::uint64_t number, int rank, const std::string& label) {
  if (current != nullptr) {
    current->add(Trace::MessageEnd{message_id(number, rank), true, current_track, current->now(), 0, label});
  }
}

void record_use(std::uint64_t number, int rank, double arrival) {
  if (current != nullptr) {
    current->add(Trace::MessageEnd{message_id(number, rank), false, current_track, current->now(), arrival});
  }
}

Span::Span(const char* name, const char* category) : name_(name), category_(category), trace_(current) {
  if (trace_ != nullptr) {
    start_ = trace_->now();
  }
}

void Span::show_label() { outer_label_ = std::exchange(current_label, &label_); }

Span::~Span() {
  if (outer_label_ != nullptr) {
    current_label = outer_label_;
  }
  if (trace_ != nullptr && trace_ == current) {
    trace_->wait();
    trace_->add(Trace::Event{name_, category_, current_track, start_, trace_->now() - start_, std::move(label_)});
  }
}

}  // namespace stagecoach
