#include "datasets/budget.h"

#include "core/base/error.h"

namespace stagecoach {

Budget::Share Budget::take(std::int64_t amount) {
  STAGECOACH_CHECK(amount >= 0 && amount <= total_, "budget: expected an amount from 0 to {}, got {}", total_, amount);
  std::unique_lock lock(mutex_);
  came_back_.wait(lock, [&] { return amount <= left_; });
  left_ -= amount;
  return Share(*this, amount);
}

void Budget::release(std::int64_t amount) {
  {
    const std::lock_guard lock(mutex_);
    left_ += amount;
  }
  came_back_.notify_all();
}

}  // namespace stagecoach
