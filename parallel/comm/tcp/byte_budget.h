#pragma once
/// @file
/// Limits the memory that a server holds for its clients. Only one thread may use a budget and its charges.

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

namespace stagecoach {

/// Counts the bytes held for one owner. Bytes beyond the reserve are also counted in a larger budget shared with other
/// owners. The reserve stays available when the shared budget is used up.
class ByteBudget {
 public:
  /// `owner` is how the text of a refusal begins, such as "a client of this store".
  ByteBudget(std::string owner, std::size_t limit, std::size_t reserve = 0,
             std::shared_ptr<ByteBudget> shared = nullptr)
      : owner_(std::move(owner)), limit_(limit), reserve_(reserve), shared_(std::move(shared)) {}

  /// Counts `bytes`. Throws TcpStoreRefusal beyond the limit, and counts nothing then.
  void take(std::size_t bytes);
  void release(std::size_t bytes) noexcept;

 private:
  /// Returns how many of `held` bytes count against the shared budget.
  std::size_t beyond_reserve(std::size_t held) const { return held > reserve_ ? held - reserve_ : 0; }

  std::string owner_;
  std::size_t limit_;
  std::size_t reserve_;
  std::shared_ptr<ByteBudget> shared_;
  std::size_t held_ = 0;
};

/// Bytes charged to a budget, released on destruction.
class ByteCharge {
 public:
  /// Throws TcpStoreRefusal if that would exceed the budget.
  explicit ByteCharge(std::shared_ptr<ByteBudget> budget, std::size_t bytes = 0);
  ~ByteCharge();
  ByteCharge(const ByteCharge&) = delete;
  ByteCharge& operator=(const ByteCharge&) = delete;

  /// Throws TcpStoreRefusal, and changes nothing, if that would exceed the budget.
  void resize(std::size_t bytes);

 private:
  std::shared_ptr<ByteBudget> budget_;
  std::size_t bytes_ = 0;
};

}  // namespace stagecoach
