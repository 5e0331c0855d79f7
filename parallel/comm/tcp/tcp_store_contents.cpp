#include "parallel/comm/tcp/tcp_store_contents.h"

#include <fmt/format.h>

#include <utility>

#include "parallel/comm/tcp/tcp_store_message.h"

namespace stagecoach {
namespace {

/// Overhead of one entry in bytes, besides its key and its text: container nodes, counters and malloc's own overhead.
constexpr std::size_t kOverhead = 384;

}  // namespace

StoredText::StoredText(std::string_view key, std::string_view text, std::shared_ptr<ByteBudget> budget)
    : charge_(std::move(budget), key.size() + text.size() + kOverhead), text_(text) {}

void TcpStoreContents::set(std::string_view key, StoredTextPtr value) {
  values_.insert_or_assign(std::string(key), std::move(value));
}

StoredTextPtr TcpStoreContents::get(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : found->second;
}

std::int64_t TcpStoreContents::add(std::string_view key, std::int64_t number,
                                   const std::shared_ptr<ByteBudget>& budget) {
  auto found = numbers_.find(key);
  if (found == numbers_.end()) {
    found = numbers_.try_emplace(std::string(key), budget, key.size() + kOverhead).first;
  }
  std::int64_t& sum = found->second.value;
  if (std::int64_t next = 0; !__builtin_add_overflow(sum, number, &next)) {
    return sum = next;
  }
  throw TcpStoreRefusal(fmt::format("'{}' is {}: adding {} overflows 64 bits", key, sum, number));
}

void TcpStoreContents::push(std::string_view key, StoredTextPtr value) {
  auto found = queues_.find(key);
  if (found == queues_.end()) {
    found = queues_.try_emplace(std::string(key)).first;
  }
  found->second.push_back(std::move(value));
}

StoredTextPtr TcpStoreContents::pop(const std::string& key) {
  const auto found = queues_.find(key);
  if (found == queues_.end()) {
    return nullptr;
  }
  StoredTextPtr oldest = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) {
    queues_.erase(found);
  }
  return oldest;
}

}  // namespace stagecoach
