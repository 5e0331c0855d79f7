#pragma once
/// @file
/// The streams of an asynchronous CPU device: each is a queue of calls, and a thread that runs them in order.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "core/stream.h"

namespace stagecoach {

class Trace;

/// The number of a call in its queue, from 1.
using Ticket = std::uint64_t;

class CallQueue {
 public:
  // How far the caller may run ahead of the queue's thread before it waits. What a call writes is allocated when the
  // call is appended, so running ahead takes memory: on each stream kBytesAlwaysAllowed or, if that is more, half of
  // what the device's allocator has reserved. That includes what is queued, so the memory of a program may double. A
  // pipeline needs it: one micro-batch of a stage must fit into the queue, or the caller cannot go on to the stage of
  // another device. A single call may write more.
  static constexpr Ticket kMaxAhead = 4096;
  static constexpr std::size_t kBytesAlwaysAllowed = 256 << 20;

  explicit CallQueue(const Stream& stream) : stream_(stream) {}
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  void start();
  /// Runs the calls that are left, and ends the thread.
  void stop();
  const Stream& stream() const { return stream_; }

  /// Appends a call of the operation `name` (a string literal), which writes `bytes` of memory, and returns its number.
  /// The trace of the calling thread shows when it ran; null leaves it out of traces.
  Ticket push(const char* name, std::function<void()> call, std::size_t bytes = 0);
  /// Returns the number of the last call so far.
  Ticket last() const;
  /// Waits until call `ticket` has run. Throws Error that names the operation if it or an earlier one has failed: after
  /// a failure all calls are skipped until stop(), as what they would read was not computed.
  void wait(Ticket ticket);
  /// Waits until all calls so far have run, and reports nothing.
  void finish();

  /// Returns how long the thread has worked so far, in seconds: not the time in which a call waits for another queue.
  double busy_seconds() const;

  /// Returns whether this thread is running a call of some queue; there, everything is synchronous.
  static bool is_running_call();

 private:
  struct Call {
    const char* name;
    std::function<void()> run;
    Trace* trace;
    std::string label;
    std::size_t bytes;
  };
  bool has_room(std::size_t bytes, std::size_t most) const;
  void work();
  void run(Call& call);
  void wait_until(Ticket ticket, std::unique_lock<std::mutex>& lock);

  Stream stream_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;  // a call, or the end
  std::condition_variable done_;     // a call
  std::deque<Call> calls_;
  Ticket pushed_ = 0;
  Ticket completed_ = 0;
  std::size_t bytes_ahead_ = 0;  // written by calls that have not run
  double busy_seconds_ = 0;
  bool stop_ = false;
  std::exception_ptr failure_;  // of call failed_at_, the first that failed
  Ticket failed_at_ = 0;
  std::jthread thread_;
};

}  // namespace stagecoach
