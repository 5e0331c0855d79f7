#pragma once
/// @file
/// The messages of the ranks of a world besides their tensors: short texts, and the news that a rank has failed. They
/// go over a TcpStore; between two ranks they arrive in the order in which they were posted.

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

#include "parallel/comm/tcp/tcp_store.h"

namespace stagecoach {

/// One rank's. All threads of the rank may use it.
class ControlChannel {
 public:
  /// Rank `rank` of `size`, at the store that is served at `address`. Messages of channels of another
  /// `name` are kept apart.
  /// If this process dies, the others hear of it. Throws CommError when nobody answers there within `timeout`, which is
  /// for all waits that follow, and UsageError when it is not let in, or the rank has a channel of this name already.
  ControlChannel(const TcpStoreAddress& address, const std::string& name, int rank, int size,
                 std::chrono::duration<double> timeout);
  ~ControlChannel();
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;

  std::chrono::duration<double> timeout() const { return timeout_; }
  /// `key` has no line end. Does not wait.
  void post(int to, const std::string& key, const std::string& text);
  /// The oldest text under `key` that has come, or nothing. Does not wait.
  std::optional<std::string> take(const std::string& key);

  /// Tells all ranks that this one has failed.
  void fail(const std::string& why);
  /// Who has failed, and why; "" as long as nobody has.
  std::string failure() const;
  bool has_failed() const { return has_failed_; }

  /// Waits for a moment, or until a message or a failure arrives.
  void back_off();

 private:
  void listen();
  /// What the store keeps for a rank until that takes it.
  std::string queue_of(int rank) const;
  void note_failure(const std::string& who);

  const std::string name_;
  const int rank_;
  const int size_;
  const std::chrono::duration<double> timeout_;
  std::mutex posting_;  // guards the next
  TcpStore out_;
  TcpStore in_;
  std::atomic<bool> has_failed_ = false;
  std::atomic<bool> ending_ = false;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable came_;
  std::map<std::string, std::deque<std::string>> messages_;
  std::string failure_;
  std::jthread listener_;
};

/// One wait for other ranks.
class ControlWait {
 public:
  using ErrorContext = std::function<std::string()>;
  /// `doing` is what errors begin with; a request to `stop` ends the wait.
  ControlWait(ControlChannel& control, std::stop_token stop, ErrorContext doing);
  /// What is waited for is not there yet: returns after a moment. Throws CommError after the timeout, when a rank has
  /// failed, and when this one has aborted.
  void poll();

 private:
  ControlChannel& control_;
  std::stop_token stop_;
  ErrorContext doing_;
  std::chrono::steady_clock::time_point began_;
};

}  // namespace stagecoach
