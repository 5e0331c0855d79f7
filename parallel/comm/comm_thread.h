#pragma once
/// @file
/// A second thread of a rank, for communication that goes on beside the rank's own work: what a communication stream is
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

/// Runs jobs one after another, in the order in which they were given. All ranks of the group give the same jobs in the
/// same order: then collectives match, whenever each rank reaches them. On a GPU its kernels run on the
/// device's compute stream, after what was given to that before.
class CommThread {
 public:
  /// From when to when, by the rank's clock.
  struct Span {
    double begin = 0;
    double end = 0;
  };
  /// A job that was given. It must not outlive its CommThread.
  class Pending {
   public:
    /// Returns when the job has ended, and enters it in the trace; meanwhile the second thread has the rank's core.
    /// Throws what the job threw; a job that follows one that threw does not run, and throws the same.
    Span wait() const;

   private:
    friend class CommThread;
    struct Job;
    Pending(CommThread& comm_thread, std::shared_ptr<Job> job) : comm_thread_(&comm_thread), job_(std::move(job)) {}
    CommThread* comm_thread_;
    std::shared_ptr<Job> job_;
  };

  /// All ranks of `comm` make one together. `comm` must outlive it.
  explicit CommThread(Communicator& comm);
  /// Aborts what has not ended.
  ~CommThread();
  CommThread(const CommThread&) = delete;
  CommThread& operator=(const CommThread&) = delete;

  /// `job` gets a communicator of the group for itself. Tensors that it uses belong to it until it has ended. `name` (a
  /// string literal) is its name in the trace, on a track beside the rank's, and in errors.
  Pending run(const char* name, std::function<void(Communicator& comm)> job);

 private:
  void work(Communicator& comm);
  std::shared_ptr<Pending::Job> next(Clock& clock);

  Communicator& comm_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Pending::Job>> jobs_;
  Communicator* own_ = nullptr;  // the thread's, while it runs
  bool started_ = false;
  bool ending_ = false;
  std::exception_ptr failure_;  // the thread's
  std::jthread thread_;
};

}  // namespace stagecoach
