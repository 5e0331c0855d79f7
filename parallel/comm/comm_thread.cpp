#include "parallel/comm/comm_thread.h"

#include <exception>
#include <memory>

#include "core/allocator.h"
#include "core/autograd/grad_mode.h"
#include "core/base/on_exit.h"
#include "core/base/start_thread.h"
#include "core/parallel_for.h"
#include "parallel/comm/communicator_controls.h"

namespace stagecoach {

CommThread::Span CommThread::Pending::wait() const {
  Waiting waiting(comm_thread_->comm_.clock());
  const Span span = end();
  waiting.until(span.end);
  return span;
}

void CommThread::Pending::join() const {
  const Waiting waiting(comm_thread_->comm_.clock());
  static_cast<void>(end());
}

CommThread::Span CommThread::Pending::end() const {
  comm_thread_->own_->controls().set_spinning(true);  // the rank does not need the core now
  span_.wait();                                       // each of the job's own waits has a deadline
  comm_thread_->own_->controls().set_spinning(false);
  return span_.get();
}

CommThread::CommThread(Communicator& comm) : comm_(comm) {
  const Waiting waiting(comm.clock());  // a GPU's clock lets one thread compute at a time
  std::promise<Communicator*> own;
  std::future<Communicator*> started = own.get_future();
  thread_ =
      start_thread("the communication thread", [this, own = std::move(own), memories = meta_memories()]() mutable {
        use_meta_memories(std::move(memories));
        std::unique_ptr<Communicator> duplicate;
        try {
          duplicate = comm_.duplicate();
        } catch (...) {
          own.set_exception(std::current_exception());
          return;
        }
        own.set_value(duplicate.get());
        work(*duplicate);
      });
  own_ = started.get();
}

CommThread::~CommThread() {
  own_->controls().abort();
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  const Waiting waiting(comm_.clock());  // as in the constructor
  thread_.join();
}

CommThread::Pending CommThread::submit(const char* name, Work job, Trace* trace) {
  Job given{name,
            std::make_shared<const Work>(std::move(job)),
            current_work(),
            trace,
            Trace::track_of_this_thread(),
            comm_.clock().now()};
  Pending pending(*this, given.span.get_future(), given.work);
  const std::lock_guard lock(mutex_);
  jobs_.push_back(std::move(given));
  changed_.notify_all();
  return pending;
}

/// Returns the next job, or nothing when the thread must end.
std::optional<CommThread::Job> CommThread::next(Clock& clock) {
  Waiting waiting(clock);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return ending_ || !jobs_.empty(); });
  if (ending_) {
    return std::nullopt;
  }
  Job job = std::move(jobs_.front());
  jobs_.pop_front();
  waiting.until(job.given);
  return job;
}

/// Runs a job and records it in the trace of the thread that submitted it, beside that thread's work.
void CommThread::run(const Job& job, Communicator& comm) {
  const OnExit detach(Trace::detach);
  if (job.trace != nullptr) {
    job.trace->attach(job.trace->track_beside(job.track, &comm), [&comm] { return comm.clock().now(); });
  }
  const stagecoach::Span span(job.name, "communication");
  const Activity activity(job.name, job.given_in.stage, job.given_in.microbatch);
  (*job.work)(comm);
}

void CommThread::work(Communicator& comm) {
  const NoGrad no_grad;
  const SingleThreaded single;  // the device's threads belong to the rank's own thread
  std::exception_ptr failure;
  while (auto job = next(comm.clock())) {
    const double begin = comm.clock().now();
    if (failure == nullptr) {
      try {
        run(*job, comm);
      } catch (...) {
        failure = std::current_exception();
      }
    }
    job->work = nullptr;
    if (failure == nullptr) {
      job->span.set_value({begin, comm.clock().now()});
    } else {
      job->span.set_exception(failure);
    }
  }
}

}  // namespace stagecoach
