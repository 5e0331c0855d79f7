#pragma once
/// @file
/// Bounds what a server keeps in memory for others. Only one thread uses a budget and what is charged to it.

#include <cstddef>
#include <memory>
#include <string>

namespace stagecoach {

/// Counts the bytes that are kept for someone, and at the same time in a larger budget that this one is part of.
class ByteBudget {
 public:
  /// `owner` begins the text of a refusal: "a client of this store".
  ByteBudget(std::string owner, std::size_t limit, std::shared_ptr<ByteBudget> whole = nullptr)
      : owner_(std::move(owner)), limit_(limit), whole_(std::move(whole)) {}

  /// Throws TcpStoreRefusal beyond the limit; nothing is counted then.
  void take(std::size_t bytes);
  void give_back(std::size_t bytes) noexcept;

 private:
  std::string owner_;
  std::size_t limit_;
  std::shared_ptr<ByteBudget> whole_;
  std::size_t held_ = 0;
};

/// Some bytes of a budget, given back when it is destroyed.
class ByteCharge {
 public:
  /// Throws TcpStoreRefusal beyond the budget.
  explicit ByteCharge(std::shared_ptr<ByteBudget> budget, std::size_t bytes = 0);
  ~ByteCharge();
  ByteCharge(const ByteCharge&) = delete;
  ByteCharge& operator=(const ByteCharge&) = delete;

  /// Throws as the constructor does, and changes nothing then.
  void resize(std::size_t bytes);

 private:
  std::shared_ptr<ByteBudget> budget_;
  std::size_t bytes_ = 0;
};

}  // namespace stagecoach
