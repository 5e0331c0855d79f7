#pragma once
/// @file
/// The control messages of the ranks of a world: short texts, and the failure of a rank. They travel over rank 0's
/// bootstrap; between two ranks they arrive in the order in which they were posted.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "parallel/comm/tcp/bootstrap.h"
#include "parallel/comm/wait_policy.h"

namespace stagecoach {

/// One rank's end. All threads of the rank may use it.
class ControlChannel {
 public:
  /// Connects rank `rank` of `size` to the bootstrap at `address`. Channels with different names are independent. If
  /// this process dies, the other ranks are told. Throws CommError if there is no answer within `timeout`, which also
  /// applies to later waits, and UsageError if the bootstrap does not admit this process, expects another number of
  /// ranks, or has had a channel of this rank and name before.
  ControlChannel(const RankAddress& address, const std::string& name, int rank, int size,
                 std::chrono::duration<double> timeout);
  ~ControlChannel();
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;

  std::chrono::duration<double> timeout() const { return timeout_; }
  /// Returns the address of this machine in the network in which rank 0 is.
  std::string local_host() const { return local_address(socket_).host; }
  /// Sends `text`, of at most kMaxText bytes, to rank `to`, or to all others (kToAll), under `key`. Throws CommError if
  /// the connection to rank 0 is lost.
  void post(int to, const std::string& key, const std::string& text);
  static constexpr int kToAll = BootstrapHeader::kToAll;
  /// Removes and returns the oldest text received under `key`, or nullopt. Does not wait.
  std::optional<std::string> take(const std::string& key);

  /// Tells all ranks that this one has failed.
  void fail(const std::string& why);
  /// Returns who has failed, and why; "" while no rank has failed.
  std::string failure() const;
  bool has_failed() const { return has_failed_; }

  /// Waits for a moment, or until a message or a failure arrives.
  void back_off();

 private:
  void listen();
  /// Returns false if the connection is lost.
  bool receive();
  void note_failure(const std::string& who);
  std::string lost() const;

  const RankAddress address_;
  const int rank_;
  const std::chrono::duration<double> timeout_;
  std::mutex posting_;  // one thread at a time sends
  TcpSocket socket_;
  std::atomic<bool> has_failed_ = false;
  std::atomic<bool> ending_ = false;
  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::map<std::string, std::deque<std::string>> messages_;
  std::string failure_;
  bool has_ended_ = false;  // the listener
  std::jthread listener_;
};

/// One wait for other ranks.
class ControlWait {
 public:
  /// `context` returns the text with which errors begin; a request to `stop` ends the wait. `renewed`, if it is given,
  /// is when the deadline was last renewed, and must outlive the wait.
  ControlWait(ControlChannel& control, std::stop_token stop, std::function<std::string()> context,
              const std::atomic<std::chrono::steady_clock::time_point>* renewed = nullptr);
  /// Throws CommError after the timeout, when a rank has failed, or when this rank has aborted.
  void check();
  /// Called while the wait is not over: checks, and returns after a moment.
  void poll();
  /// Waits for a message under `key`, and returns its text.
  std::string take(const std::string& key);

 private:
  ControlChannel& control_;
  std::stop_token stop_;
  std::function<std::string()> context_;
  WaitTime time_;
  const std::atomic<std::chrono::steady_clock::time_point>* renewed_;
};

}  // namespace stagecoach
