#pragma once
/// @file
/// Which samples a forward computes, for layers that draw random numbers: so that they do not depend on how a batch is
/// divided into micro-batches and over ranks.

#include <cstdint>
#include <optional>

namespace stagecoach {

struct BatchPosition {
  std::int64_t step = 0;   ///< of the training
  std::int64_t first = 0;  ///< the index, in the whole batch of that step, of the first sample of the forward's input
};

/// States the position of the forwards of this thread until the end of the scope. Scopes may be nested.
class BatchScope {
 public:
  explicit BatchScope(const std::optional<BatchPosition>& position) : outer_(current_) { current_ = position; }
  ~BatchScope() { current_ = outer_; }
  BatchScope(const BatchScope&) = delete;
  BatchScope& operator=(const BatchScope&) = delete;

  /// Returns the position of this thread's forwards, if it is known.
  static const std::optional<BatchPosition>& current() { return current_; }

 private:
  static inline thread_local std::optional<BatchPosition> current_;
  std::optional<BatchPosition> outer_;
};

}  // namespace stagecoach
