#pragma once
/// @file
/// What the ranks of a world tell each other beside their tensors: short texts, and the news that a rank has failed.
/// They go over a TcpStore; between two ranks they arrive in the order in which they were posted.

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
class Mail {
 public:
  /// Rank `rank` of `size`, at the store that is served at `address`. Mails of another `name` do not meet this one's.
  /// If this process dies, the others hear of it. Throws CommError when nobody answers there within `timeout`, which is
  /// for all waits that follow, and UsageError when it is not let in, or the rank has a mail of this name already.
  Mail(const TcpStoreAddress& address, const std::string& name, int rank, int size,
       std::chrono::duration<double> timeout);
  ~Mail();
  Mail(const Mail&) = delete;
  Mail& operator=(const Mail&) = delete;

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

  /// Returns when something comes, or after a moment.
  void rest();

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
  std::map<std::string, std::deque<std::string>> letters_;
  std::string failure_;
  std::jthread listener_;
};

/// One wait for other ranks.
class MailWait {
 public:
  using Words = std::function<std::string()>;
  /// `doing` is what errors begin with; a request to `stop` ends the wait.
  MailWait(Mail& mail, std::stop_token stop, Words doing);
  /// What is waited for is not there yet: returns after a moment. Throws CommError after the timeout, when a rank has
  /// failed, and when this one has given up.
  void look();

 private:
  Mail& mail_;
  std::stop_token stop_;
  Words doing_;
  std::chrono::steady_clock::time_point began_;
};

}  // namespace stagecoach
