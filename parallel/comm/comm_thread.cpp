#include "parallel/comm/comm_thread.h"

#include <utility>

#include "core/autograd/grad_mode.h"
#include "core/parallel_for.h"
#include "core/start_thread.h"
#include "core/trace.h"
#include "parallel/comm/activity.h"

namespace stagecoach {

struct CommThread::Pending::Job {
  const char* name = nullptr;
  std::function<void(Communicator&)> work = nullptr;
  Activity::Work given_in = {};  // what the rank was working on
  double given = 0;              // when it was submitted, by the rank's clock
  Span span = {};
  std::exception_ptr failure = nullptr;
  bool ended = false;
  std::mutex mutex = {};  // guards the job's results
  std::condition_variable changed = {};

  void end(Span when, std::exception_ptr why) {
    const std::lock_guard lock(mutex);
    span = when;
    failure = std::move(why);
    ended = true;
    changed.notify_all();
  }
};

CommThread::Span CommThread::Pending::wait() const {
  Waiting waiting(comm_thread_->comm_.clock());
  comm_thread_->own_->set_spinning(true);  // the rank does not need the core now
  {
    std::unique_lock lock(job_->mutex);
    job_->changed.wait(lock, [this] { return job_->ended; });  // each of the job's own waits has a deadline
  }
  comm_thread_->own_->set_spinning(false);
  if (job_->failure != nullptr) {
    std::rethrow_exception(job_->failure);
  }
  waiting.until(job_->span.end);
  record_beside(job_->name, "communication", job_->span.begin, job_->span.end - job_->span.begin);
  return job_->span;
}

CommThread::CommThread(Communicator& comm) : comm_(comm) {
  const Waiting waiting(comm.clock());  // a GPU's clock lets one thread compute at a time
  std::unique_lock lock(mutex_);
  thread_ = start_thread("the communication thread", [this] {
    std::unique_ptr<Communicator> own;
    try {
      own = comm_.duplicate();
    } catch (...) {
      failure_ = std::current_exception();
    }
    {
      const std::lock_guard started(mutex_);
      own_ = own.get();
      started_ = true;
      changed_.notify_all();
    }
    if (own != nullptr) {
      work(*own);
    }
  });
  changed_.wait(lock, [this] { return started_; });
  if (failure_ != nullptr) {
    std::rethrow_exception(failure_);
  }
}

CommThread::~CommThread() {
  own_->abort();
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  const Waiting waiting(comm_.clock());  // as in the constructor
  thread_.join();
}

CommThread::Pending CommThread::submit(const char* name, std::function<void(Communicator&)> job) {
  auto given = std::make_shared<Pending::Job>();
  given->name = name;
  given->work = std::move(job);
  given->given_in = current_work();
  given->given = comm_.clock().now();
  const std::lock_guard lock(mutex_);
  jobs_.push_back(given);
  changed_.notify_all();
  return {*this, given};
}

/// Returns the next job, or null when the thread must end.
std::shared_ptr<CommThread::Pending::Job> CommThread::next(Clock& clock) {
  Waiting waiting(clock);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return ending_ || !jobs_.empty(); });
  if (ending_) {
    return nullptr;
  }
  auto job = std::move(jobs_.front());
  jobs_.pop_front();
  waiting.until(job->given);
  return job;
}

void CommThread::work(Communicator& comm) {
  const NoGrad no_grad;
  const SingleThreaded single;  // the device's threads belong to the rank's own thread
  while (const auto job = next(comm.clock())) {
    const double begin = comm.clock().now();
    if (failure_ == nullptr) {
      try {
        const Activity activity(job->name, job->given_in.stage, job->given_in.microbatch);
        job->work(comm);
      } catch (...) {
        failure_ = std::current_exception();
      }
    }
    job->work = nullptr;  // releases what the job held
    job->end({begin, comm.clock().now()}, failure_);
  }
}

}  // namespace stagecoach
