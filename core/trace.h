#pragma once
/// @file
/// A record of what each rank did and when: one track per rank with nested spans, one per link direction with the
/// messages that it carried, and an arrow from each send to the use of its message.

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/device.h"

namespace stagecoach {

/// One file of Chrome's trace format (Perfetto opens it), made of what events_json and messages_json return.
std::string trace_json(const std::vector<std::string>& parts);

/// Collects spans while it is attached to a thread. Attach the thread of each rank to a track of its own.
class Trace {
 public:
  /// A file can show a run and its prediction, each as a group of tracks.
  enum class Process { measured, predicted };

  static constexpr int kBeside = 1000;  ///< greater than any rank
  struct Event {
    const char* name;      ///< a string literal: an operation, "forward", …
    const char* category;  ///< a string literal
    int track;             ///< the rank, or kBeside + the rank for what goes on beside its own work
    double start;          ///< seconds since the trace was made
    double seconds;
    std::string label = {};  ///< which one of these, such as "1F3"; may be empty
  };
  /// The send of a message, or its use by the receiver, within a span on the track of that rank.
  struct MessageEnd {
    std::uint64_t id;  ///< the same at both ends
    bool is_send;
    int track;
    double time;             ///< seconds since the trace was made
    double arrival;          ///< at the use: when the message arrived
    std::string label = {};  ///< at the send: the message's name, without blanks
  };

  explicit Trace(Process process = Process::measured);
  /// Until detach(), spans of the calling thread are recorded here, on `track`; by `clock` (seconds) if it is given.
  void attach(int track, std::function<double()> clock = {});
  static void detach();
  /// From now on each span waits at its end for the work that `device` was given, so that it shows how long that work
  /// took and not how long it took to launch it.
  void wait_for(Device device) { awaited_ = device; }
  /// Waits if wait_for was called. A device that has failed reports that at the next call that needs it.
  void wait() const noexcept;
  /// What was recorded so far.
  std::vector<Event> events() const;
  /// Seconds since the trace was made, or by the calling thread's own clock.
  double now() const;
  void add(const Event& event);
  void add(const MessageEnd& end);

  /// Everything in Chrome's trace format; times in microseconds.
  std::string to_json() const { return trace_json({events_json(), messages_json()}); }
  /// The spans, for trace_json.
  std::string events_json() const;
  /// The messages whose two ends are both here: the arrows, and the tracks of the link directions. A message is on its
  /// link from its send until it arrived; it is drawn after the one before it where the two overlap.
  std::string messages_json() const;
  /// Writes the message ends as text, and adds those of such a text: this is how the traces of several processes are
  /// merged.
  std::string message_ends_text() const;
  void add_message_ends(const std::string& text);

 private:
  Process process_;
  std::chrono::steady_clock::time_point start_;
  std::optional<Device> awaited_;
  mutable std::mutex mutex_;
  std::vector<Event> events_;
  std::vector<MessageEnd> message_ends_;
};

/// Records on a track of its own, in the trace of this thread, if there is one, what went on beside its work.
void record_beside(const char* name, const char* category, double start, double seconds);

/// These record in this thread's trace, if it has one, that a message is sent or used within the current span. `number`
/// identifies the message within a group of ranks, and `rank` is this rank's number in that group; the ranks of a group
/// have consecutive tracks. `arrival` is when the message arrived, by the thread's clock.
void record_send(std::uint64_t number, int rank, const std::string& label);
void record_use(std::uint64_t number, int rank, double arrival);

/// Records its own scope in the trace of this thread; costs one branch when there is none.
class Span {
 public:
  Span(const char* name, const char* category);
  /// `label()` returns which one of these it is. It is called only where there is a trace.
  template <class Label>
  Span(const char* name, const char* category, const Label& label) : Span(name, category) {
    if (trace_ != nullptr) {
      label_ = label();
    }
  }
  ~Span();
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  const char* name_;
  const char* category_;
  Trace* trace_;  // the one that was attached when the scope began
  double start_ = 0;
  std::string label_;
};

}  // namespace stagecoach
