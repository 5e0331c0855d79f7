#include "datasets/prefetcher.h"

#include <utility>

#include "core/base/start_thread.h"
#include "core/base/system.h"

namespace stagecoach {

Prefetcher::Prefetcher(std::function<Batch(std::int64_t)> make, std::int64_t first, std::int64_t last)
    : make_(std::move(make)),
      first_(first),
      last_(last),
      thread_(start_thread("the prefetch thread", [this](const std::stop_token& stop) { work(stop); })) {}

std::optional<Batch> Prefetcher::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !ready_.empty() || finished_; });
  if (!ready_.empty()) {
    std::optional<Batch> batch(std::move(ready_.front()));
    ready_.pop_front();
    changed_.notify_one();
    return batch;
  }
  if (failure_) {
    std::rethrow_exception(failure_);
  }
  return std::nullopt;
}

void Prefetcher::work(const std::stop_token& stop) {
  std::exception_ptr failure;
  try {
    system::run_on_cores(
        system::usable_cores());  // a rank, with its threads, is pinned to one core (parallel/launch/launch.h)
    for (std::int64_t index = first_; index < last_; ++index) {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [this] { return ready_.size() < kAhead; }) || stop.stop_requested()) {
        return;  // told to stop: nothing waits for more batches
      }
      lock.unlock();
      Batch batch = make_(index);
      lock.lock();
      ready_.push_back(std::move(batch));
      changed_.notify_one();
    }
  } catch (...) {
    failure = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  failure_ = std::move(failure);
  finished_ = true;
  changed_.notify_one();
}

}  // namespace stagecoach
