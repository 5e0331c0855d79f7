#pragma once
/// @file
/// Counts what a rank sends, for the traffic per link.

#include <map>
#include <mutex>

namespace stagecoach {

/// The bytes that one rank has sent to each other rank. All threads and communicators of the rank share it.
class SentBytes {
 public:
  void add(int to, double bytes) {
    const std::lock_guard lock(mutex_);
    by_receiver_[to] += bytes;
  }
  /// Returns the bytes sent so far, by receiving rank of the world.
  std::map<int, double> by_receiver() const {
    const std::lock_guard lock(mutex_);
    return by_receiver_;
  }

 private:
  mutable std::mutex mutex_;  // guards the member below
  std::map<int, double> by_receiver_;
};

}  // namespace stagecoach
