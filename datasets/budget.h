#pragma once
/// @file
/// What threads may hold at once, all of them together: of bytes, of pixels.

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace stagecoach {

/// Any thread may take shares; one that finds too little left waits until others give theirs back. A thread that takes
/// from two budgets takes them in the same order as all others.
class Budget {
 public:
  explicit Budget(std::int64_t total) : total_(total), left_(total) {}

  /// Held until it is destroyed.
  class Share {
   public:
    Share(Budget& budget, std::int64_t amount) : budget_(budget), amount_(amount) {}
    ~Share() { budget_.release(amount_); }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

   private:
    Budget& budget_;
    std::int64_t amount_;
  };

  /// Waits for `amount`, which is at least 0. Throws Error if it is more than there is in all.
  [[nodiscard]] Share take(std::int64_t amount);

 private:
  void release(std::int64_t amount);

  const std::int64_t total_;
  std::int64_t left_;
  std::mutex mutex_;
  std::condition_variable came_back_;
};

}  // namespace stagecoach
