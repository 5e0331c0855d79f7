// Writes traces in Chrome's trace event format. Viewers treat processes and threads with the number 0 specially, so the
// numbers here begin at 1.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/stream.h"
#include "core/trace.h"

namespace stagecoach {
namespace {

/// The id of a track in the file.
using Track = std::int64_t;
constexpr Track kLinks = 1'000'000;  // greater than any other track

Track id_of(int track) { return Track{track} + 1; }
int id_of(Trace::Process process) { return process == Trace::Process::measured ? 1 : 2; }

/// A time or a duration, in multiples of 1/8 us. Written as microseconds, with three decimals, each is exact in binary
/// too, so that sums and roundings of a reader move no end of a span over another one.
using Ticks = std::int64_t;
Ticks ticks(double seconds) { return std::llround(seconds * 8e6); }
std::string microseconds(Ticks ticks) { return fmt::format("{}.{:03}", ticks / 8, ticks % 8 * 125); }

std::string name_line(const char* what, int process, Track track, const std::string& name) {
  return fmt::format(R"({{"name":"{}","ph":"M","pid":{},"tid":{},"args":{{"name":"{}"}}}})", what, process, track,
                     name);
}

std::string order_line(const char* what, int process, Track track, Track index) {
  return fmt::format(R"({{"name":"{}","ph":"M","pid":{},"tid":{},"args":{{"sort_index":{}}}}})", what, process, track,
                     index);
}

std::string track_name(int track, bool has_streams) {
  if (track >= Trace::kStreams) {
    const auto [device, stream] = std::div(track - Trace::kStreams, 2);
    return fmt::format("cpu:{}{}", device, stream == Stream::kCopies ? " copies" : "");
  }
  if (has_streams) {
    return "host";
  }
  const auto [beside, rank] = std::div(track, Trace::kBeside);
  return beside == 0   ? fmt::format("rank {}", rank)
         : beside == 1 ? fmt::format("beside rank {}", rank)
                       : fmt::format("beside rank {} ({})", rank, beside);
}

/// Returns the lines that name a track and put it in its place: each rank's tracks follow each other, then come those
/// of devices and of links.
std::vector<std::string> track_lines(int process, int track, bool has_streams) {
  const auto [beside, rank] = std::div(track, Trace::kBeside);
  const Track index = track < Trace::kStreams ? 10 * rank + std::min(beside, 9) : track;
  return {name_line("thread_name", process, id_of(track), track_name(track, has_streams)),
          order_line("thread_sort_index", process, id_of(track), index)};
}

std::string span_line(const std::string& name, const char* category, int process, Track track, Ticks start, Ticks end,
                      const std::string& args) {
  return fmt::format(R"({{"name":"{}","cat":"{}","ph":"X","pid":{},"tid":{},"ts":{},"dur":{}{}}})", name, category,
                     process, track, microseconds(start), microseconds(end - start),
                     args.empty() ? "" : fmt::format(R"(,"args":{{{}}})", args));
}

std::string span_line(const Trace::Event& event, int process) {
  std::string args = event.label.empty() ? "" : fmt::format(R"("operation":"{}")", event.name);
  if (!event.args.empty()) {
    args += (args.empty() ? "" : ",") + event.args;
  }
  return span_line(event.label.empty() ? event.name : event.label, event.category, process, id_of(event.track),
                   ticks(event.start), ticks(event.end), args);
}

/// Returns the events by time, where an outer span comes before the spans in it. Inner spans were recorded first. At
/// one time they are ordered by track, since threads record them in any order.
std::vector<Trace::Event> in_order(std::vector<Trace::Event> events) {
  std::reverse(events.begin(), events.end());
  std::stable_sort(events.begin(), events.end(), [](const Trace::Event& a, const Trace::Event& b) {
    return std::tuple(ticks(a.start), -ticks(a.end), a.track) < std::tuple(ticks(b.start), -ticks(b.end), b.track);
  });
  return events;
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
  for (auto& [ranks, messages] : links) {
    std::stable_sort(messages.begin(), messages.end(),
                     [](const Message& a, const Message& b) { return a.use->arrival < b.use->arrival; });
  }
  return links;
}

}  // namespace

std::string Trace::events_json() const {
  const std::lock_guard lock(mutex_);
  const int process = id_of(process_);
  std::vector<std::string> lines{
      name_line("process_name", process, 1, process_ == Process::measured ? "measured" : "predicted"),
      order_line("process_sort_index", process, 1, process)};
  const bool has_streams =
      std::any_of(events_.begin(), events_.end(), [](const Event& event) { return event.track >= Trace::kStreams; });
  std::set<int> tracks;
  for (const Event& event : in_order(events_)) {
    if (tracks.insert(event.track).second) {
      const std::vector<std::string> names = track_lines(process, event.track, has_streams);
      lines.insert(lines.end(), names.begin(), names.end());
    }
    lines.push_back(span_line(event, process));
  }
  for (const auto& [name, device, samples] : counters_) {
    for (const auto& [seconds, bytes] : samples) {
      lines.push_back(fmt::format(R"({{"name":"{}","ph":"C","pid":{},"tid":1,"ts":{},"args":{{"bytes":{}}}}})", name,
                                  process, microseconds(ticks(seconds)), bytes));
    }
  }
  return fmt::format("{}", fmt::join(lines, ",\n"));
}

std::string Trace::messages_json() const {
  const std::lock_guard lock(mutex_);
  const int process = id_of(process_);
  // Viewers match the two ends of an arrow by category and id, whatever the process.
  const char* category = process_ == Process::measured ? "message" : "predicted message";
  std::vector<std::string> lines;
  std::uint64_t id = 0;
  for (const auto& [ranks, messages] : messages_of_links(message_ends_)) {
    const Track link = kLinks + Track{ranks.first} * kBeside + ranks.second;
    lines.push_back(name_line("thread_name", process, link, fmt::format("link {} -> {}", ranks.first, ranks.second)));
    lines.push_back(order_line("thread_sort_index", process, link, link));
    double end = 0;
    for (const auto& [send, use] : messages) {
      const double start = std::max(send->time, end);
      end = std::max(start, use->arrival);
      lines.push_back(span_line(send->label, "link", process, link, ticks(start), ticks(end),
                                send->bytes == 0 ? "" : fmt::format(R"("bytes":{})", send->bytes)));
      for (const MessageEnd* at : {send, use}) {
        lines.push_back(fmt::format(R"({{"name":"message","cat":"{}","ph":"{}",{}"id":{},"pid":{},"tid":{},"ts":{}}})",
                                    category, at->is_send ? "s" : "f", at->is_send ? "" : R"("bp":"e",)", id, process,
                                    id_of(at->track), microseconds(ticks(at->time))));
      }
      ++id;
    }
  }
  return fmt::format("{}", fmt::join(lines, ",\n"));
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

}  // namespace stagecoach
