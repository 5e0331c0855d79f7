#include "parallel/comm/tcp/tcp_store_contents.h"

#include <fmt/format.h>

#include <cstring>

#include "core/base/throw_if.h"
#include "parallel/comm/tcp/tcp_store_message.h"

namespace stagecoach {
namespace {

/// Overhead of one entry in bytes, besides its key and its text: container nodes, counters and malloc's own overhead.
constexpr std::size_t kOverhead = 384;

}  // namespace

void ByteBudget::take(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  throw_if<TcpStoreRefusal>(bytes > limit_ - held_, "{} can store at most {} bytes: it has {}, and {} more were sent",
                            owner_, limit_, held_, bytes);
  if (shared_ != nullptr) {
    shared_->take(beyond_reserve(held_ + bytes) - beyond_reserve(held_));
  }
  held_ += bytes;
}

void ByteBudget::release(std::size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  if (shared_ != nullptr) {
    shared_->release(beyond_reserve(held_) - beyond_reserve(held_ - bytes));
  }
  held_ -= bytes;
}

StoredText::StoredText(std::size_t key_bytes, std::size_t bytes, std::shared_ptr<ByteBudget> budget)
    : charge(std::move(budget), key_bytes + bytes + kOverhead), text(bytes, '\0') {}

void TcpStoreContents::set(const std::string& key, StoredTextPtr value) {
  const std::lock_guard lock(mutex_);
  values_[key] = std::move(value);
  wake(key);
}

StoredTextPtr TcpStoreContents::get(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : found->second;
}

std::int64_t TcpStoreContents::add(const std::string& key, std::int64_t number,
                                   const std::shared_ptr<ByteBudget>& budget) {
  const std::lock_guard lock(mutex_);
  auto found = numbers_.find(key);
  if (found == numbers_.end()) {
    found = numbers_.try_emplace(key, budget, key.size() + kOverhead).first;
  }
  std::int64_t& sum = found->second.value;
  if (std::int64_t next = 0; !__builtin_add_overflow(sum, number, &next)) {
    return sum = next;
  }
  throw TcpStoreRefusal(fmt::format("'{}' is {}: adding {} overflows 64 bits", key, sum, number));
}

void TcpStoreContents::push(const std::string& key, StoredTextPtr value) {
  const std::lock_guard lock(mutex_);
  queues_[key].push_back(std::move(value));
  wake(key);
}

StoredTextPtr TcpStoreContents::pop(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = queues_.find(key);
  if (found == queues_.end() || found->second.empty()) {
    return nullptr;
  }
  StoredTextPtr oldest = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) {
    queues_.erase(found);
  }
  return oldest;
}

void TcpStoreContents::wake(const std::string& key) const {
  const auto [begin, end] = watches_.equal_range(key);
  for (auto watch = begin; watch != end; ++watch) {
    watch->second->set();
  }
}

}  // namespace stagecoach
