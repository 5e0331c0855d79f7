#pragma once
/// @file
/// MPI as ranks use it here: nothing waits forever, and a rank that has failed reports that to the others. Only sources
/// that are built with MPI include this.
///
/// MPI itself knows no deadlines, and what happens when a process dies is left to its launcher. So every call that can
/// wait is one of those that return at once, and the wait is a loop that polls: whether it is over, whether another
/// rank has failed or died, and whether the deadline has passed.

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "parallel/comm/wait_policy.h"

namespace stagecoach {

/// The MPI of this process, from the first use to the end of the program. All threads may use it.
class MpiWorld {
 public:
  /// Starts MPI at the first call. Throws UsageError when it cannot serve several threads. `timeout` is for all that
  /// follows.
  static MpiWorld& instance(std::chrono::duration<double> timeout);
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// Processes on this machine, including this one.
  int local_size() const { return local_size_; }
  /// This one's number among them.
  int local_rank() const { return local_rank_; }
  /// For the ranks' own messages.
  MPI_Comm comm() const { return comm_; }

  using ErrorContext = std::function<std::string()>;
  /// Returns when all of `requests` are done. Throws CommError, which begins with what `doing` returns, after the
  /// timeout and when a rank has failed. Meanwhile `meanwhile` is called again and again, if it is there.
  void wait(std::span<MPI_Request> requests, const WaitPolicy& policy, const ErrorContext& doing,
            const std::function<void()>& meanwhile = {});
  /// Whether they are.
  bool are_done(std::span<MPI_Request> requests);
  /// Throws CommError when `code` is no success.
  static void check(int code, const ErrorContext& doing);

  /// A long message goes on only while a thread of each of its ranks is in a call of MPI. As long as the result lives,
  /// a thread besides the rank's own sees to that.
  std::shared_ptr<void> keep_moving();

  /// For calls of MPI that wait and that no rank can give up: ends the process when the timeout passes.
  void guard(const char* call, const std::function<void()>& body) const;

  /// Tells all ranks that this one has failed, and waits, for a second at most, until all have heard or have failed
  /// too: a launcher ends the others when one process ends.
  void fail(const std::string& why);
  bool failed() const { return !failure().empty(); }
  /// Keeps the memory of a message that is under way and can no longer be called back, until the process ends.
  void leak_until_exit(std::shared_ptr<void> memory);

 private:
  explicit MpiWorld(std::chrono::duration<double> timeout);
  void find_local_ranks();
  void move_messages(const std::stop_token& stop);
  void listen();
  /// Receives what others tell about themselves.
  void poll();
  void check_for_dead();
  /// Whether all ranks but this one have failed or died.
  bool are_all_gone();
  void note_failure(const std::string& who);
  std::string failure() const;

  /// The longest reason of a failure, in characters.
  static constexpr int kMaxReason = 2000;
  struct LocalRank {
    int rank;
    int process;  // a descriptor that can be read when the process has ended
  };

  int rank_ = 0;
  int size_ = 1;
  int local_size_ = 1;
  int local_rank_ = 0;
  MPI_Comm comm_ = MPI_COMM_NULL;
  MPI_Comm news_ = MPI_COMM_NULL;
  std::chrono::duration<double> timeout_;
  std::vector<LocalRank> watched_;
  std::mutex polling_;  // guards what one thread at a time does in poll()
  MPI_Request listening_ = MPI_REQUEST_NULL;
  std::vector<char> heard_;
  std::vector<bool> gone_;  // ranks that have failed or died
  std::chrono::steady_clock::time_point checked_for_dead_;
  std::atomic<bool> has_failed_ = false;
  std::atomic<int> waiting_ = 0;  // threads in wait(), which move messages themselves
  std::mutex moving_mutex_;       // guards the next
  int moving_ = 0;                // long messages under way
  std::condition_variable_any moving_changed_;
  mutable std::mutex mutex_;  // guards what follows
  std::string failure_;
  std::vector<std::shared_ptr<void>> leaked_;
  std::jthread mover_;
};

}  // namespace stagecoach
