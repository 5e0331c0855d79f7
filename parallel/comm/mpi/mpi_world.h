#pragma once
/// @file
/// A layer over MPI in which nothing waits forever, and a failed rank reports its failure to the others. Only sources
/// that are built with MPI include this header.
///
/// MPI itself has no deadlines, and leaves the handling of a dead process to the launcher. So every call that could
/// wait is a non-blocking one, followed by a loop that polls whether it is done, whether another rank has failed or
/// died, and whether the deadline has passed.

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

/// This process's use of MPI, from the first use to the end of the program. All threads may use it.
class MpiWorld {
 public:
  /// Initializes MPI on the first call. Throws UsageError if MPI does not support multiple threads. `timeout` applies
  /// to all later waits.
  static MpiWorld& instance(std::chrono::duration<double> timeout);
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// Returns the number of processes on this machine, including this one.
  int local_size() const { return local_size_; }
  /// Returns this process's number among the processes on this machine.
  int local_rank() const { return local_rank_; }
  /// Returns the communicator for the ranks' own messages.
  MPI_Comm comm() const { return comm_; }

  /// Waits until all of `requests` are done, and calls `meanwhile` repeatedly, if it is set. Throws CommError, whose
  /// text begins with what `context` returns, after the timeout or when a rank has failed.
  void wait(std::span<MPI_Request> requests, const WaitPolicy& policy, const ErrorContext& context,
            const std::function<void()>& meanwhile = {});
  /// Returns whether all of `requests` are done.
  bool are_done(std::span<MPI_Request> requests);
  /// Throws CommError unless `code` is MPI_SUCCESS.
  static void check(int code, const ErrorContext& context);

  /// Keeps long messages moving as long as the result lives: they progress only while a thread of each rank is in an
  /// MPI call, so a helper thread makes such calls.
  std::shared_ptr<void> keep_moving();

  /// Runs `body`, a blocking MPI call that cannot be cancelled, and ends the process when the timeout passes.
  void guard(const char* call, const std::function<void()>& body) const;

  /// Tells all ranks that this one has failed, and waits at most a second until all have received that or have failed
  /// too: a launcher ends the other processes when one ends.
  void fail(const std::string& why);
  bool failed() const { return !failure().empty(); }
  /// Keeps, until the process ends, the memory of a message that is under way and cannot be cancelled.
  void leak_until_exit(std::shared_ptr<void> memory);

 private:
  explicit MpiWorld(std::chrono::duration<double> timeout);
  void find_local_ranks();
  void move_messages(const std::stop_token& stop);
  void listen();
  /// Receives the failure reports of other ranks.
  void poll();
  void check_for_dead();
  void note_failure(const std::string& who);
  std::string failure() const;

  /// The maximum length of a failure's reason, in characters.
  static constexpr int kMaxReason = 2000;
  struct LocalRank {
    int rank;
    int process;  // a handle of system::watch_process
  };

  int rank_ = 0;
  int size_ = 1;
  int local_size_ = 1;
  int local_rank_ = 0;
  MPI_Comm comm_ = MPI_COMM_NULL;
  MPI_Comm news_ = MPI_COMM_NULL;
  std::chrono::duration<double> timeout_;
  std::vector<LocalRank> watched_;
  std::mutex polling_;  // lets one thread at a time into poll()
  MPI_Request listening_ = MPI_REQUEST_NULL;
  std::vector<char> heard_;
  std::vector<bool> gone_;  // ranks that have failed or died
  std::chrono::steady_clock::time_point checked_for_dead_;
  std::atomic<bool> has_failed_ = false;
  std::atomic<int> waiting_ = 0;  // threads in wait(), whose MPI calls move messages
  std::mutex moving_mutex_;       // guards moving_
  int moving_ = 0;                // long messages under way
  std::condition_variable_any moving_changed_;
  mutable std::mutex mutex_;  // guards the members below
  std::string failure_;
  std::vector<std::shared_ptr<void>> leaked_;
  std::jthread mover_;
};

}  // namespace stagecoach
