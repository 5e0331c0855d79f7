#pragma once
/// @file
/// Signs of life between ranks, so that a wait for a rank that computes or writes for long differs from a wait for one
/// that is stopped or gone.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>

#include "core/base/on_exit.h"
#include "parallel/comm/comm_thread.h"

namespace stagecoach {

/// A thread beside the rank's own tells all other ranks, at least twice per second, that this one is alive, also while
/// it computes. While the rank waits for another one, each sign of that rank renews the deadline of the wait.
class Heartbeat {
 public:
  /// When the thread speaks.
  enum class Beats {
    always,        ///< while the process is alive: a worker does what it is told
    while_used,    ///< while the rank calls or waits: if a master's program does neither for too long, its workers end
    while_running  ///< unless the rank's thread has been in one call to the system for longer than `longest_call`
  };
  using Seconds = std::chrono::duration<double>;
  static constexpr Seconds kLongestCall = std::chrono::minutes(10);

  /// Collective over `comm`, which must outlive this object, as must `thread`, a thread of this rank and `comm` that
  /// does nothing else meanwhile. `timeout` is that of the world, in seconds.
  Heartbeat(CommThread& thread, Communicator& comm, double timeout, Beats beats, Seconds longest_call = kLongestCall);
  /// Falls silent at once, unless end() was called. Does not wait for other ranks.
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  /// Notes that the rank's program does something.
  void note_use() { is_used_ = true; }
  /// Marks the rank as waiting for rank `rank`, as long as the result exists.
  auto await(int rank) {
    awaited_ = rank;
    return OnExit([this] { awaited_ = kNobody; });
  }
  /// Marks the rank as waiting for all others: the deadline of its wait is renewed when each has given a sign.
  auto await_all() { return await(kEverybody); }
  /// Ends the signs after all ranks have called it. Throws CommError if a rank does not, and is silent for longer than
  /// the timeout.
  void end();

 private:
  static constexpr int kNobody = -1;
  static constexpr int kEverybody = -2;

  void beat(Communicator& own);
  bool is_alive();
  /// Returns whether the rank's thread has used its processor within `longest_call_`.
  bool is_running();
  static void tell_others(Communicator& own, double sign);
  /// Whether to read the signs received so far, or to wait for the last ones of all ranks.
  enum class Listen { now, to_the_end };
  void listen(Communicator& own, Listen how);

  Communicator& comm_;
  const Seconds period_;
  const Beats beats_;
  const Seconds longest_call_;
  const std::function<std::int64_t()> processor_time_;  // of the rank's thread; empty if the system does not tell
  std::int64_t ran_for_ = -1;
  std::chrono::steady_clock::time_point last_ran_;
  std::atomic<bool> is_used_ = true;
  std::atomic<int> awaited_ = kNobody;
  std::set<int> heard_;  // ranks that have given a sign since the waits for all were renewed
  std::set<int> ended_;  // ranks whose last sign has arrived
  enum class State { beating, ending, stopped };
  void change(State state);
  std::mutex mutex_;  // guards state_
  std::condition_variable changed_;
  State state_ = State::beating;
  CommThread::Pending beating_;
};

}  // namespace stagecoach
