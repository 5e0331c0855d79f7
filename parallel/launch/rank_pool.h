#pragma once
/// @file
/// Ranks that stay alive between calls: for a library that is called by a program without ranks.

#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "parallel/launch/launch.h"

namespace stagecoach {

/// The ranks of a world, each a thread of this process with its own device and communicator. Only one thread may use a
/// pool.
class RankPool {
 public:
  /// Starts the ranks, which wait for work. Ranks of GPUs are distributed round-robin over the GPUs of this machine.
  /// Throws what `launch` throws, and UsageError if the ranks of `world` are processes.
  explicit RankPool(World world);
  /// Ends the ranks.
  ~RankPool();
  RankPool(const RankPool&) = delete;
  RankPool& operator=(const RankPool&) = delete;

  /// Runs `body` once per rank, all at the same time, and returns when all have ended. If a rank throws, the waits of
  /// the others for it end, and its error is thrown here as by `launch`. The ranks have then ended for good: later
  /// calls throw Error with the text of that error.
  void run(const std::function<void(Rank& rank)>& body);

  int ranks() const { return world_.ranks; }
  std::vector<Device> devices() const;

  // What a Run measures (parallel/training/run.h).
  /// Returns the seconds that the ranks have worked in run() so far, on average, without their waits for messages.
  double busy_seconds() const;
  /// Returns the bytes that the ranks have sent to each other so far, by sender and receiver.
  std::map<std::pair<int, int>, double> bytes_sent();
  /// Returns a clock of the same times as those of the ranks, for the calling thread.
  std::shared_ptr<Clock> clock();

 private:
  void serve(Rank& rank);
  [[noreturn]] void rethrow_failure();

  World world_;
  std::mutex mutex_;  // guards the members below, except for thread_
  std::condition_variable changed_;
  const std::function<void(Rank& rank)>* body_ = nullptr;
  int runs_ = 0;                // how often run() has been called
  int finished_ = 0;            // ranks that have ended the current run
  double worked_ = 0;           // seconds of all ranks
  bool ending_ = false;         // the destructor was called, or a rank has failed
  std::exception_ptr failure_;  // what launch() threw
  bool is_reported_ = false;    // run() has thrown it
  std::jthread thread_;         // calls launch(); destroyed first
};

}  // namespace stagecoach
