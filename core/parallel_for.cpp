#include "core/parallel_for.h"

#include <utility>

#include "core/base/relax.h"
#include "core/base/start_thread.h"

namespace stagecoach {
namespace {

// Operations follow each other within microseconds, so a thread spins for about that long before it sleeps.
constexpr int kSpins = 4000;

/// Waits until `value` no longer holds `old`.
template <class T>
void wait_while(const std::atomic<T>& value, T old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) {
      return;
    }
    relax();
  }
  value.wait(old, std::memory_order_acquire);
}

constinit thread_local int single_threaded_depth = 0;

}  // namespace

SingleThreaded::SingleThreaded() { ++single_threaded_depth; }
SingleThreaded::~SingleThreaded() { --single_threaded_depth; }
bool SingleThreaded::is_active() { return single_threaded_depth > 0; }

ThreadPool::~ThreadPool() { resize(1); }

void ThreadPool::resize(int threads) {
  stop_.store(true);
  generation_.fetch_add(1);
  generation_.notify_all();
  workers_.clear();  // a jthread joins when it is destroyed
  stop_.store(false);
  const std::uint64_t seen = generation_.load();
  for (int i = 1; i < threads; ++i) {
    workers_.push_back(start_thread(fmt::format("thread {} of {}", i + 1, threads), [this, seen] { work(seen); }));
  }
}

void ThreadPool::run(std::int64_t count, Body body, void* context) {
  count_ = count;
  body_ = body;
  context_ = context;
  next_.store(0, std::memory_order_relaxed);
  pending_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  drain();
  for (int left = pending_.load(std::memory_order_acquire); left != 0;
       left = pending_.load(std::memory_order_acquire)) {
    wait_while(pending_, left);
  }
  if (failure_) {
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
}

void ThreadPool::work(std::uint64_t seen) {
  while (true) {
    wait_while(generation_, seen);
    seen = generation_.load(std::memory_order_acquire);
    if (stop_.load()) {
      return;
    }
    drain();
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      pending_.notify_all();
    }
  }
}

void ThreadPool::drain() {
  for (std::int64_t i = next_.fetch_add(1); i < count_; i = next_.fetch_add(1)) {
    try {
      body_(context_, i);
    } catch (...) {
      const std::lock_guard lock(failure_mutex_);
      if (!failure_) {
        failure_ = std::current_exception();
      }
    }
  }
}

}  // namespace stagecoach
