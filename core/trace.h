#pragma once
/// @file
/// A record of what a rank did when: one track a rank, spans nested on it.

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/device.h"

namespace stagecoach {

/// One file of Chrome's trace format with the events of several ranks, each as events_json gives them.
std::string trace_json(const std::vector<std::string>& ranks);

/// Collects spans while it is attached to a thread. Attach one rank's thread to one track.
class Trace {
 public:
  static constexpr int kBeside = 1000;  ///< above all ranks
  struct Event {
    const char* name;      ///< a string literal: an operation, "forward", …
    const char* category;  ///< a string literal
    int track;             ///< the rank; kBeside more for what goes on beside its own work
    double start;          ///< seconds since the trace was made
    double seconds;
    std::string label = {};  ///< which one of these, such as "1F3"; empty: the name says it all
  };
  /// One end of an arrow from a message's send to its use, within spans of two tracks.
  struct ArrowEnd {
    std::uint64_t id;  ///< the same at both ends
    bool begins;
    int track;
    double time;  ///< seconds since the trace was made
  };

  Trace();
  /// Until detach(), spans of the calling thread are recorded here, on `track`; by `clock` (seconds) if it is given.
  void attach(int track, std::function<double()> clock = {});
  static void detach();
  /// From now on each span waits at its end for the work that `device` was given: then it shows how long that took,
  /// and not how long it took to ask for it.
  void wait_for(Device device) { awaited_ = device; }
  /// Waits, if it was told to. A device that has failed says so at the next call that needs it.
  void wait() const noexcept;
  /// What was recorded so far.
  std::vector<Event> events() const;
  /// Seconds since the trace was made, or those of the calling thread's own clock.
  double now() const;
  void add(const Event& event);
  void add(const ArrowEnd& end);
  /// The events in Chrome's trace format (Perfetto opens it); times in microseconds.
  std::string to_json() const { return trace_json({events_json()}); }
  /// The same without its frame, for trace_json.
  std::string events_json() const;

 private:
  std::chrono::steady_clock::time_point start_;
  std::optional<Device> awaited_;
  mutable std::mutex mutex_;
  std::vector<Event> events_;
  std::vector<ArrowEnd> arrows_;
};

/// Enters in the trace of this thread, if there is one, what went on beside its work: on a track of its own.
void record_beside(const char* name, const char* category, double start, double seconds);

/// Enters one end of an arrow in the trace of this thread, if there is one, within the span under way. `number` is the
/// message's among those of a group of ranks, in which this one is `rank`; groups are ranks of consecutive tracks.
void record_arrow(std::uint64_t number, int rank, bool begins);

/// Records its own scope in the trace of this thread; costs one branch when there is none.
class Span {
 public:
  Span(const char* name, const char* category);
  /// `label()` says which one of these it is. It is called only where there is a trace.
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
