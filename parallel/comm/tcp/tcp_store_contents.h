#pragma once
/// @file
/// What a store keeps: values, numbers and queues, each under its keys, charged to those who put it there.

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "parallel/comm/tcp/byte_budget.h"

namespace stagecoach {

/// A text that a client sent, and the bytes that it takes from that client's budget.
class StoredText {
 public:
  /// With what keeping it under `key` costs. Throws TcpStoreRefusal beyond the budget.
  StoredText(std::string_view key, std::string_view text, std::shared_ptr<ByteBudget> budget);

  const std::string& text() const { return text_; }

 private:
  ByteCharge charge_;  // first: no copy is made of what cannot be kept
  std::string text_;
};
using StoredTextPtr = std::shared_ptr<const StoredText>;

/// One thread uses it.
class TcpStoreContents {
 public:
  void set(std::string_view key, StoredTextPtr value);
  /// Null when there is none.
  StoredTextPtr get(const std::string& key) const;
  /// The sum. Throws TcpStoreRefusal when it does not fit into 64 bits, and beyond the budget.
  std::int64_t add(std::string_view key, std::int64_t number, const std::shared_ptr<ByteBudget>& budget);
  void push(std::string_view key, StoredTextPtr value);
  /// Takes out the oldest text of a queue. Null when there is none.
  StoredTextPtr pop(const std::string& key);

 private:
  struct Number {
    Number(const std::shared_ptr<ByteBudget>& budget, std::size_t bytes) : charge(budget, bytes) {}
    ByteCharge charge;
    std::int64_t value = 0;
  };
  template <class Value>
  using Map = std::map<std::string, Value, std::less<>>;

  Map<StoredTextPtr> values_;
  Map<Number> numbers_;
  Map<std::list<StoredTextPtr>> queues_;
};

}  // namespace stagecoach
