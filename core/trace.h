#pragma once
/// @file
/// A record of what each rank did and when: one track per rank with nested spans, one track per link direction with the
/// messages that it carried, and an arrow from each send to the use of its message.

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/device.h"

namespace stagecoach {

/// Returns a file in Chrome's trace format (Perfetto opens it), assembled from results of events_json and
/// messages_json.
std::string trace_json(const std::vector<std::string>& parts);

/// Collects spans while it is attached to a thread. Attach the thread of each rank to its own track.
class Trace {
 public:
  /// A file can show both a run and its prediction, each as a group of tracks.
  enum class Process { measured, predicted };

  static constexpr int kBeside = 1000;      ///< greater than any rank
  static constexpr int kStreams = 500'000;  ///< greater than any track beside a rank
  struct Event {
    const char* name;      ///< a string literal: an operation, "forward", …
    const char* category;  ///< a string literal
    int track;     ///< the rank; n kBeside + the rank for the n-th thread that works beside it; or kStreams + 2 i + s
                   ///< for stream s of the asynchronous device cpu:i, where the rank's track shows its caller
    double start;  ///< seconds since the trace was made
    double end;
    std::string label = {};  ///< distinguishes spans of one name, such as "1F3"; may be empty
    std::string args = {};   ///< more to show of the span: members of a JSON object, such as "\"step\":3"
    double seconds() const { return end - start; }
  };
  /// The send of a message, or its use by the receiver, within a span on the track of that rank.
  struct MessageEnd {
    std::string channel;  ///< the same at both ends, without blanks; its messages are used in the order of the sends
    bool is_send;
    int track;
    double time;             ///< seconds since the trace was made
    double arrival;          ///< at the use: when the message arrived
    std::string label = {};  ///< at the send: the message's name; a message without one is not shown
    std::size_t bytes = 0;   ///< at the send: the message's size; 0 if it is not known
  };

  explicit Trace(Process process = Process::measured);
  /// Waits for queued calls, which may still add to the trace.
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;
  /// Records the spans of the calling thread on `track` until detach(), timed by `clock` (seconds) if it is given.
  void attach(int track, std::function<double()> clock = {});
  static void detach();
  /// Shows the bytes that tensors on `device` use as the counter `name`, before and after each outermost span of a
  /// rank.
  void count_memory(std::string name, Device device) { counters_.push_back({std::move(name), device}); }
  /// Returns the track of a thread that works beside the rank of `track`; `worker` is the address of what it owns.
  /// Throws Error for more than 498 such threads of a rank.
  int track_beside(int track, const void* worker);
  /// Returns the trace attached to the calling thread, or null, its track there, and the label of the thread's
  /// innermost labelled span.
  static Trace* current();
  static int track_of_this_thread();
  static std::string label_of_this_thread();
  /// Makes each later span wait at its end for the work submitted to `device`, so that the span shows how long the work
  /// took rather than how long its launch took.
  void wait_for(Device device) { awaited_ = device; }
  /// Waits for the device given to wait_for, if any. Ignores errors: the next call that uses the device reports them.
  void wait() const noexcept;
  /// Returns the spans recorded so far.
  std::vector<Event> events() const;
  /// Returns the seconds since the trace was created, or the time of the calling thread's own clock.
  double now() const;
  void add(const Event& event);
  void add(const MessageEnd& end);

  /// Returns the whole trace in Chrome's trace format, with times in microseconds.
  std::string to_json() const { return trace_json({events_json(), messages_json()}); }
  /// Returns the spans and counters, for trace_json. On each track spans nest or are disjoint: times are multiples of
  /// 1/8 us, which every reader holds exactly, and an outer span comes before the spans in it.
  std::string events_json() const;
  /// Returns the messages whose two ends are both in this trace: the arrows, and the tracks of the link directions. A
  /// message occupies its link from its send until its arrival; where two overlap, the later one is drawn after the
  /// earlier one.
  std::string messages_json() const;
  /// Returns the message ends as text, which add_message_ends reads: this is how the traces of several processes are
  /// merged.
  std::string message_ends_text() const;
  void add_message_ends(const std::string& text);

 private:
  friend class Span;
  struct Counter {
    std::string name;
    Device device;
    std::vector<std::pair<double, std::size_t>> samples = {};  ///< seconds and bytes, where they change
  };
  void sample_memory();

  Process process_;
  std::chrono::steady_clock::time_point start_;
  std::optional<Device> awaited_;
  mutable std::mutex mutex_;
  std::vector<Event> events_;
  std::vector<MessageEnd> message_ends_;
  std::vector<Counter> counters_;
  std::map<int, std::vector<const void*>> workers_;  ///< of each rank's track
};

/// record_send and record_use record in this thread's trace, if it has one, that a message is sent or used within the
/// current span, after which the message is named. One that is sent outside of any span belongs to no step, and is not
/// shown. `channel` and `bytes` are as in MessageEnd. `arrival` is the arrival time of the message by the thread's
/// clock.
void record_send(const std::string& channel, std::size_t bytes = 0);
void record_use(const std::string& channel, double arrival);

/// Returns whether this thread is within a span of the trace that it is attached to.
bool is_in_span();

/// Records its scope as a span in this thread's trace; costs one branch if there is none.
class Span {
 public:
  Span(const char* name, const char* category);
  /// `label()` returns the label of the span. It is called only if there is a trace.
  template <class Label>
  Span(const char* name, const char* category, const Label& label) : Span(name, category) {
    if (trace_ != nullptr) {
      label_ = label();
    }
  }
  ~Span();
  /// Shows the size of what the span is about.
  void set_bytes(std::size_t bytes) { bytes_ = bytes; }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  friend void record_send(const std::string& channel, std::size_t bytes);
  friend bool is_in_span();
  friend class Trace;

  const char* name_;
  const char* category_;
  Trace* trace_;                 // the trace attached when the scope began, or null
  const Span* outer_ = nullptr;  // the innermost span of this trace when the scope began
  double start_ = 0;
  std::string label_;
  std::size_t bytes_ = 0;  // 0: not shown
};

}  // namespace stagecoach
