#include "parallel/comm/tcp/byte_budget.h"

#include <fmt/format.h>

#include <utility>

#include "parallel/comm/tcp/tcp_store_message.h"

namespace stagecoach {

void ByteBudget::take(std::size_t bytes) {
  if (bytes > limit_ - held_) {
    throw TcpStoreRefusal(
        fmt::format("{} can store at most {} bytes: it has {}, and {} more were sent", owner_, limit_, held_, bytes));
  }
  if (shared_ != nullptr) {
    shared_->take(beyond_reserve(held_ + bytes) - beyond_reserve(held_));
  }
  held_ += bytes;
}

void ByteBudget::release(std::size_t bytes) noexcept {
  if (shared_ != nullptr) {
    shared_->release(beyond_reserve(held_) - beyond_reserve(held_ - bytes));
  }
  held_ -= bytes;
}

ByteCharge::ByteCharge(std::shared_ptr<ByteBudget> budget, std::size_t bytes) : budget_(std::move(budget)) {
  resize(bytes);
}

ByteCharge::~ByteCharge() { budget_->release(bytes_); }

void ByteCharge::resize(std::size_t bytes) {
  if (bytes > bytes_) {
    budget_->take(bytes - bytes_);
  } else {
    budget_->release(bytes_ - bytes);
  }
  bytes_ = bytes;
}

}  // namespace stagecoach
