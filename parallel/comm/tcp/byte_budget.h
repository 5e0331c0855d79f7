#pragma once
/// @file
/// Bounds what a server keeps in memory for others. Only one thread uses a budget and what is charged to it.

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

namespace stagecoach {

/// Counts the bytes that are kept for someone. What goes beyond a reserve is counted in a larger budget too, which this
/// one shares with others: the reserve is there when they have used that up.
class ByteBudget {
 public:
  /// `owner` begins the text of a refusal: "a client of this store".
  ByteBudget(std::string owner, std::size_t limit, std::size_t reserve = 0,
             std::shared_ptr<ByteBudget> shared = nullptr)
      : owner_(std::move(owner)), limit_(limit), reserve_(reserve), shared_(std::move(shared)) {}

  /// Throws TcpStoreRefusal beyond the limit; nothing is counted then.
  void take(std::size_t bytes);
  void release(std::size_t bytes) noexcept;

 private:
  /// What `held` bytes take from the shared budget.
  std::size_t beyond_reserve(std::size_t held) const { return held > reserve_ ? held - reserve_ : 0; }

  std::string owner_;
  std::size_t limit_;
  std::size_t reserve_;
  std::shared_ptr<ByteBudget> shared_;
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
