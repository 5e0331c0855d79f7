#pragma once
/// @file
/// A thread that makes batches in advance, so that training need not wait for them.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>

#include "datasets/loader.h"

namespace stagecoach {

/// Makes batches first … last-1 in this order and keeps at most kAhead of them ready. One thread at a time may call
/// `next`. The destructor stops the thread after its current batch.
class Prefetcher {
 public:
  static constexpr std::size_t kAhead = 2;

  /// `make` runs on the other thread; anything it refers to must outlive this object.
  Prefetcher(std::function<Batch(std::int64_t index)> make, std::int64_t first, std::int64_t last);

  /// Returns the next batch, or nothing after the last one. If `make` throws, rethrows its exception in place of that
  /// batch, and again in every later call.
  std::optional<Batch> next();

 private:
  void work(const std::stop_token& stop);

  const std::function<Batch(std::int64_t)> make_;
  const std::int64_t first_;
  const std::int64_t last_;

  std::mutex mutex_;  // guards the members below
  std::condition_variable_any changed_;
  std::deque<Batch> ready_;
  std::exception_ptr failure_;
  bool finished_ = false;

  std::jthread thread_;  // last: starts after the other members are constructed, joined before they are destroyed
};

}  // namespace stagecoach
