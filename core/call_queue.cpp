#include "core/call_queue.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/allocator.h"
#include "core/base/error.h"
#include "core/base/start_thread.h"
#include "core/trace.h"

namespace stagecoach {
namespace {

thread_local bool is_queue_thread = false;

/// The failure of a call, with the operation and the device in its text.
class CallFailed final : public Error {
 public:
  using Error::Error;
};

}  // namespace

bool CallQueue::is_running_call() { return is_queue_thread; }

void CallQueue::start() {
  stop_ = false;
  thread_ = start_thread("stream of " + to_string(stream_.device), [this] { work(); });
}

void CallQueue::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  arrived_.notify_one();
  thread_ = {};  // joins
  failure_ = nullptr;
}

bool CallQueue::has_room(std::size_t bytes, std::size_t most) const {
  const Ticket ahead = pushed_ - completed_;
  return ahead == 0 || (ahead < kMaxAhead && bytes_ahead_ + bytes <= most);
}

Ticket CallQueue::push(const char* name, std::function<void()> call, std::size_t bytes) {
  Trace* trace = name == nullptr ? nullptr : Trace::current();
  const std::size_t reserved = allocator(stream_.device).stats().reserved_bytes;
  const std::size_t most = std::max(kBytesAlwaysAllowed, reserved / 2);
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return has_room(bytes, most); });
  calls_.push_back({name, std::move(call), trace, trace == nullptr ? "" : Trace::label_of_this_thread(), bytes});
  bytes_ahead_ += bytes;
  const Ticket ticket = ++pushed_;
  lock.unlock();
  arrived_.notify_one();
  return ticket;
}

Ticket CallQueue::last() const {
  const std::lock_guard lock(mutex_);
  return pushed_;
}

void CallQueue::wait_until(Ticket ticket, std::unique_lock<std::mutex>& lock) {
  done_.wait(lock, [&] { return completed_ >= ticket; });
}

void CallQueue::wait(Ticket ticket) {
  std::unique_lock lock(mutex_);
  wait_until(ticket, lock);
  if (failure_ != nullptr && failed_at_ <= ticket) {
    std::rethrow_exception(failure_);
  }
}

double CallQueue::busy_seconds() const {
  const std::lock_guard lock(mutex_);
  return busy_seconds_;
}

void CallQueue::finish() {
  std::unique_lock lock(mutex_);
  wait_until(pushed_, lock);
}

void CallQueue::work() {
  is_queue_thread = true;
  std::unique_lock lock(mutex_);
  while (true) {
    arrived_.wait(lock, [&] { return !calls_.empty() || stop_; });
    if (calls_.empty()) {
      return;
    }
    Call call = std::move(calls_.front());
    calls_.pop_front();
    const bool skipped = failure_ != nullptr;
    lock.unlock();
    std::exception_ptr failure;
    const bool is_work = call.name != nullptr;
    const auto began = std::chrono::steady_clock::now();
    try {
      if (!skipped) {
        run(call);
      }
    } catch (...) {
      failure = std::current_exception();
    }
    const std::size_t bytes = std::exchange(call, {}).bytes;  // frees its tensors before anyone learns that it has run
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    lock.lock();
    busy_seconds_ += is_work ? took.count() : 0;
    ++completed_;
    bytes_ahead_ -= bytes;
    if (failure != nullptr) {
      failure_ = failure;
      failed_at_ = completed_;
    }
    done_.notify_all();
  }
}

void CallQueue::run(Call& call) try {
  if (call.trace == nullptr) {
    return call.run();
  }
  const double start = call.trace->now();
  call.run();
  const int track = Trace::kStreams + 2 * stream_.device.index + stream_.id;
  call.trace->add(Trace::Event{call.name, "device", track, start, call.trace->now(), std::move(call.label)});
} catch (const CallFailed&) {
  throw;  // in another queue, for which this one waited
} catch (const std::exception& error) {
  throw CallFailed(
      fmt::format("{} on {}: {}", call.name == nullptr ? "event" : call.name, to_string(stream_.device), error.what()));
}

}  // namespace stagecoach
