#pragma once
/// @file
/// A second thread of a rank, for communication that overlaps with the rank's own work, as a communication stream does
/// on a GPU.

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "parallel/comm/communicator.h"

namespace stagecoach {

/// Runs jobs one after another, in the order in which they were submitted. All ranks of the group submit the same jobs
/// in the same order, so that their collectives match. On a GPU, a job's kernels run on the device's compute stream,
/// after the work already queued there.
class CommThread {
 public:
  /// When a job began and ended, by the rank's clock.
  struct Span {
    double begin = 0;
    double end = 0;
  };
  /// A job that was submitted. It must not outlive its CommThread.
  class Pending {
   public:
    /// Waits until the job has ended, and records it in the trace; meanwhile the second thread may use the rank's core.
    /// Throws what the job threw. Jobs that follow a failed one do not run, and their wait throws the same exception.
    Span wait() const;

   private:
    friend class CommThread;
    struct Job;
    Pending(CommThread& comm_thread, std::shared_ptr<Job> job) : comm_thread_(&comm_thread), job_(std::move(job)) {}
    CommThread* comm_thread_;
    std::shared_ptr<Job> job_;
  };

  /// Collective over `comm`: all its ranks construct one. `comm` must outlive it.
  explicit CommThread(Communicator& comm);
  /// Aborts jobs that have not ended.
  ~CommThread();
  CommThread(const CommThread&) = delete;
  CommThread& operator=(const CommThread&) = delete;

  /// Submits `job`, which gets its own communicator of the group. Tensors that the job uses belong to it until it has
  /// ended. `name` (a string literal) is the job's name in errors and in the trace, on a track beside the rank's.
  Pending submit(const char* name, std::function<void(Communicator& comm)> job);

 private:
  void work(Communicator& comm);
  std::shared_ptr<Pending::Job> next(Clock& clock);

  Communicator& comm_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Pending::Job>> jobs_;
  Communicator* own_ = nullptr;  // the thread's communicator, while the thread runs
  bool started_ = false;
  bool ending_ = false;
  std::exception_ptr failure_;  // failure of the thread
  std::jthread thread_;
};

}  // namespace stagecoach
