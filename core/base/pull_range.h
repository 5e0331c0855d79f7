#pragma once
/// @file
/// A range for range-based `for` loops over the results of a function that is called repeatedly.

#include <type_traits>
#include <utility>

namespace stagecoach {

/// The range of the elements that `next()` returns pointers to. It ends when `next()` returns null.
template <class Next>
class PullRange {
 public:
  class Iterator {
   public:
    explicit Iterator(Next& next) : next_(next), element_(next()) {}
    auto& operator*() const { return *element_; }
    Iterator& operator++() {
      element_ = next_();
      return *this;
    }
    bool operator==(std::default_sentinel_t) const { return element_ == nullptr; }

   private:
    Next& next_;
    std::invoke_result_t<Next&> element_;
  };

  explicit PullRange(Next next) : next_(std::move(next)) {}
  Iterator begin() { return Iterator(next_); }
  static std::default_sentinel_t end() { return {}; }

 private:
  Next next_;
};

}  // namespace stagecoach
