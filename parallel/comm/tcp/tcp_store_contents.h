#pragma once
/// @file
/// The contents of a store: values, numbers and queues, each with its own keys. Their memory is limited: it is charged
/// to the clients that stored them.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "core/base/on_exit.h"
#include "core/base/wakeup.h"

namespace stagecoach {

/// Counts the bytes held for one owner. Any thread may use it. Bytes beyond the reserve are also counted in a larger
/// budget shared with other owners. The reserve stays available when the shared budget is used up.
class ByteBudget {
 public:
  /// `owner` is how the text of a refusal begins, such as "a client of this store".
  ByteBudget(std::string owner, std::size_t limit, std::size_t reserve = 0,
             std::shared_ptr<ByteBudget> shared = nullptr)
      : owner_(std::move(owner)), limit_(limit), reserve_(reserve), shared_(std::move(shared)) {}

  /// Counts `bytes`. Throws TcpStoreRefusal, and counts nothing, if that would exceed the limit.
  void take(std::size_t bytes);
  void release(std::size_t bytes) noexcept;

 private:
  /// Returns how many of `held` bytes count against the shared budget.
  std::size_t beyond_reserve(std::size_t held) const { return held > reserve_ ? held - reserve_ : 0; }

  std::string owner_;
  std::size_t limit_;
  std::size_t reserve_;
  std::shared_ptr<ByteBudget> shared_;
  std::mutex mutex_;  // guards held_
  std::size_t held_ = 0;
};

/// Bytes charged to a budget, released on destruction.
class ByteCharge {
 public:
  /// Throws TcpStoreRefusal if that would exceed the budget.
  ByteCharge(std::shared_ptr<ByteBudget> budget, std::size_t bytes) : budget_(std::move(budget)), bytes_(bytes) {
    budget_->take(bytes_);
  }
  ~ByteCharge() { budget_->release(bytes_); }
  ByteCharge(const ByteCharge&) = delete;
  ByteCharge& operator=(const ByteCharge&) = delete;

 private:
  std::shared_ptr<ByteBudget> budget_;
  std::size_t bytes_;
};

/// A text that a client sent. It and its key are charged to that client's budget.
struct StoredText {
  /// Throws TcpStoreRefusal if that would exceed the budget. `text` initially has `bytes` zeros.
  StoredText(std::size_t key_bytes, std::size_t bytes, std::shared_ptr<ByteBudget> budget);

  ByteCharge charge;  ///< declared first, so that a text beyond the budget takes no memory
  std::string text;
};
using StoredTextPtr = std::shared_ptr<const StoredText>;

/// Any thread may use it.
class TcpStoreContents {
 public:
  void set(const std::string& key, StoredTextPtr value);
  /// Returns the value of `key`, or null if there is none.
  StoredTextPtr get(const std::string& key);
  /// Returns the sum. Throws TcpStoreRefusal if it does not fit into 64 bits, or beyond the budget.
  std::int64_t add(const std::string& key, std::int64_t number, const std::shared_ptr<ByteBudget>& budget);
  void push(const std::string& key, StoredTextPtr value);
  /// Removes and returns the oldest text of a queue, or returns null if it is empty.
  StoredTextPtr pop(const std::string& key);

  /// Sets `event` when a value or a text comes under `key`, as long as the result exists.
  auto watch(const std::string& key, const Wakeup& event) {
    const std::lock_guard lock(mutex_);
    return OnExit([this, entry = watches_.emplace(key, &event)] {
      const std::lock_guard end_lock(mutex_);
      watches_.erase(entry);
    });
  }

 private:
  struct Number {
    Number(const std::shared_ptr<ByteBudget>& budget, std::size_t bytes) : charge(budget, bytes) {}
    ByteCharge charge;
    std::int64_t value = 0;
  };
  void wake(const std::string& key) const;

  std::mutex mutex_;  // guards the members below
  std::map<std::string, StoredTextPtr> values_;
  std::map<std::string, Number> numbers_;
  std::map<std::string, std::deque<StoredTextPtr>> queues_;
  std::multimap<std::string, const Wakeup*> watches_;
};

}  // namespace stagecoach
