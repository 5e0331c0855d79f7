#pragma once
/// @file
/// The threads of one device, which share the independent iterations of a loop.

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

#include "core/device.h"

namespace stagecoach {

/// A fork-join pool. The calling thread works too, so `threads() == 1` means that there is no other thread. Only one
/// thread at a time may call `run`: the rank that owns the device.
class ThreadPool {
 public:
  using Body = void (*)(void* context, std::int64_t index);

  ThreadPool() = default;
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return 1 + static_cast<int>(workers_.size()); }
  void resize(int threads);
  /// Calls body(context, i) once for each i in [0, count), in any order, and returns when all calls are done. Rethrows
  /// the first exception.
  void run(std::int64_t count, Body body, void* context);

 private:
  void work(std::uint64_t seen);
  void drain();

  std::vector<std::jthread> workers_;
  // One job at a time. `generation_` is incremented when a job starts (or the pool ends); `pending_` counts the workers
  // that have not yet finished the job.
  std::atomic<std::uint64_t> generation_{0};
  std::atomic<int> pending_{0};
  std::atomic<std::int64_t> next_{0};
  std::atomic<bool> stop_{false};
  std::int64_t count_ = 0;
  Body body_ = nullptr;
  void* context_ = nullptr;
  std::mutex failure_mutex_;
  std::exception_ptr failure_;
};

/// Returns the pool of a CPU device.
ThreadPool& thread_pool(Device device);

/// Until the end of the scope, parallel_for runs on the calling thread alone. Meant for a second thread of a rank,
/// since only one thread may use the pool. Scopes may be nested. Nothing is inline, as each level of the CPU kernels
/// (core/kernels/levels.h) has its own copies of inline functions and variables.
class SingleThreaded {
 public:
  SingleThreaded();
  ~SingleThreaded();
  SingleThreaded(const SingleThreaded&) = delete;
  SingleThreaded& operator=(const SingleThreaded&) = delete;
  static bool is_active();
};

/// Calls body(i) for each i in [0, count) on the threads of `device`. The iterations must write to different locations,
/// and their results must not depend on the number of threads.
template <class F>
void parallel_for(Device device, std::int64_t count, F&& body) {
  ThreadPool& pool = thread_pool(device);
  if (count <= 1 || SingleThreaded::is_active() || pool.threads() == 1) {
    for (std::int64_t i = 0; i < count; ++i) {
      body(i);
    }
    return;
  }
  using Plain = std::remove_reference_t<F>;
  pool.run(
      count, [](void* context, std::int64_t i) { (*static_cast<Plain*>(context))(i); },
      const_cast<void*>(static_cast<const void*>(&body)));
}

}  // namespace stagecoach
