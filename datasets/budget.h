#pragma once
/// @file
/// A limit on what all threads together may hold at once, such as bytes or pixels.

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace stagecoach {

/// Any thread may take shares. If too little is left, it waits until other threads release theirs. To avoid deadlock,
/// all threads that take from two budgets must do so in the same order.
class Budget {
 public:
  explicit Budget(std::int64_t total) : total_(total), left_(total) {}

  /// A share of the budget, held until it is destroyed.
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

  /// Waits for `amount`, at least 0, and takes it. Throws Error if it exceeds the total.
  [[nodiscard]] Share take(std::int64_t amount);

 private:
  void release(std::int64_t amount);

  const std::int64_t total_;
  std::int64_t left_;
  std::mutex mutex_;
  std::condition_variable came_back_;
};

}  // namespace stagecoach
