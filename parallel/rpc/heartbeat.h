#pragma once
/// @file
/// Signs of life between the ranks of remote calls, so that a wait for a rank that computes for long differs from a
/// wait for one that is stopped or gone.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <set>

#include "core/on_exit.h"
#include "parallel/comm/comm_thread.h"

namespace stagecoach::rpc {

/// A thread beside the rank's own tells all other ranks, at least twice per second, that this one is alive, also while
/// it computes. While the rank waits for another one, each sign of that rank renews the deadline of the wait.
class Heartbeat {
 public:
  /// When the thread speaks. A worker does what it is told, so it is alive while its process is. A master counts as
  /// alive while it calls or waits: if its program does neither for too long, its workers end.
  enum class Beats { always, while_used };

  /// Collective over `comm`, which must outlive this object. `timeout` is that of the world, in seconds.
  Heartbeat(Communicator& comm, double timeout, Beats beats);
  /// Falls silent at once, unless end() was called.
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
  /// Ends the thread after all ranks have called it. Throws CommError if a rank does not, and is silent for longer than
  /// the timeout.
  void end();

 private:
  static constexpr int kNobody = -1;

  void beat(Communicator& own);
  static void tell_others(Communicator& own, double sign);
  /// Whether to take in the signs that have come, or to wait for the last ones of all ranks.
  enum class Listen { to_what_came, to_the_last };
  void listen(Communicator& own, Listen how);

  Communicator& comm_;
  const std::chrono::duration<double> period_;
  const Beats beats_;
  std::atomic<bool> is_used_ = true;
  std::atomic<int> awaited_ = kNobody;
  std::set<int> ended_;  // ranks whose last sign has come
  enum class State { beating, ending, stopped };
  void change(State state);
  std::mutex mutex_;  // guards state_
  std::condition_variable changed_;
  State state_ = State::beating;
  std::optional<CommThread> thread_;
  std::optional<CommThread::Pending> beating_;
};

}  // namespace stagecoach::rpc
