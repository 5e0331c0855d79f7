#pragma once
/// @file
/// A second thread of a rank, for communication that overlaps with the rank's own work, as a communication stream does
/// on a GPU.

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "core/trace.h"
#include "parallel/comm/activity.h"
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
  using Work = std::function<void(Communicator& comm)>;
  /// A job that was submitted. It must not outlive its CommThread. What the job holds lives at least as long, so the
  /// rank's own thread says when memory is free.
  class Pending {
   public:
    /// Waits until the job has ended; meanwhile the second thread may use the rank's core.
    /// Throws what the job threw. Jobs that follow a failed one do not run, and their wait throws the same exception.
    Span wait() const;
    /// Does the same for a job that is no part of the rank's work: if the rank's clock computes times, it does not
    /// continue at the time when the job ended.
    void join() const;

   private:
    Span end() const;
    friend class CommThread;
    Pending(CommThread& comm_thread, std::future<Span> span, std::shared_ptr<const Work> work)
        : comm_thread_(&comm_thread), span_(std::move(span)), work_(std::move(work)) {}
    CommThread* comm_thread_;
    std::shared_future<Span> span_;
    std::shared_ptr<const Work> work_;
  };

  /// Collective over `comm`: all its ranks construct one. `comm` must outlive it.
  explicit CommThread(Communicator& comm);
  /// Aborts jobs that have not ended.
  ~CommThread();
  CommThread(const CommThread&) = delete;
  CommThread& operator=(const CommThread&) = delete;

  /// Submits `job`, which gets its own communicator of the group. Tensors that the job uses belong to it until it has
  /// ended. `name` (a string literal) is the job's name in errors and in the trace, on a track beside the rank's; if
  /// `trace` is given, it must outlive the job.
  Pending submit(const char* name, Work job, Trace* trace = Trace::current());

 private:
  struct Job {
    const char* name;
    std::shared_ptr<const Work> work;
    Activity::Work given_in;  // what the rank was working on
    Trace* trace;             // that the rank was attached to, or null, and its track there
    int track;
    double given;  // when it was submitted, by the rank's clock
    std::promise<Span> span = {};
  };
  static void run(const Job& job, Communicator& comm);
  void work(Communicator& comm);
  std::optional<Job> next(Clock& clock);

  Communicator& comm_;
  Communicator* own_ = nullptr;  // the thread's communicator, while the thread runs
  std::mutex mutex_;             // guards the members below
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool ending_ = false;
  std::jthread thread_;
};

}  // namespace stagecoach
