#pragma once
/// @file
/// A thread that makes batches before they are asked for, so that training need not wait for them.

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

/// Makes batches first … last-1 in this order and keeps at most kAhead of them waiting. One thread at a time may
/// call `next`. Destroying it, whenever, stops the thread after the batch that it is at.
class Prefetcher {
 public:
  static constexpr std::size_t kAhead = 2;

  /// `make` runs on the other thread; what it refers to must outlive this object.
  Prefetcher(std::function<Batch(std::int64_t index)> make, std::int64_t first, std::int64_t last);

  /// The next batch, or nothing after the last one. An exception of `make` is thrown here, in place of its batch,
  /// and again in every later call.
  std::optional<Batch> next();

 private:
  void work(const std::stop_token& stop);

  const std::function<Batch(std::int64_t)> make_;
  const std::int64_t first_;
  const std::int64_t last_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable_any changed_;
  std::deque<Batch> ready_;
  std::exception_ptr failure_;
  bool finished_ = false;

  std::jthread thread_;  // last, so that it starts when the rest is there and is joined before the rest goes
};

}  // namespace stagecoach
