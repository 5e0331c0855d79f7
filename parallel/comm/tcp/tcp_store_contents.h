#pragma once
/// @file
/// The contents of a store: values, numbers and queues, each with its own keys, charged to the clients that stored
/// them.

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "parallel/comm/tcp/byte_budget.h"

namespace stagecoach {

/// A text that a client sent, and its charge to that client's budget.
class StoredText {
 public:
  /// Charges `budget` for storing `text` under `key`. Throws TcpStoreRefusal beyond the budget.
  StoredText(std::string_view key, std::string_view text, std::shared_ptr<ByteBudget> budget);

  const std::string& text() const { return text_; }

 private:
  ByteCharge charge_;  // declared first, so that a text beyond the budget is not copied
  std::string text_;
};
using StoredTextPtr = std::shared_ptr<const StoredText>;

/// Used by one thread only.
class TcpStoreContents {
 public:
  void set(std::string_view key, StoredTextPtr value);
  /// Returns the value of `key`, or null if there is none.
  StoredTextPtr get(const std::string& key) const;
  /// Returns the sum. Throws TcpStoreRefusal if it does not fit into 64 bits, or beyond the budget.
  std::int64_t add(std::string_view key, std::int64_t number, const std::shared_ptr<ByteBudget>& budget);
  void push(std::string_view key, StoredTextPtr value);
  /// Removes and returns the oldest text of a queue, or returns null if it is empty.
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
