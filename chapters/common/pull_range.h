#pragma once
/// @file
/// A range-based `for` over a source that makes one element after the other.

#include <iterator>

namespace stagecoach {

/// Iterates over a source whose `next()` returns a pointer to the next element, or null after the last one. The
/// source's begin() returns this, its end() std::default_sentinel.
template <class Source>
class PullIterator {
 public:
  explicit PullIterator(Source& source) : source_(source), element_(source.next()) {}
  auto& operator*() const { return *element_; }
  PullIterator& operator++() {
    element_ = source_.next();
    return *this;
  }
  bool operator==(std::default_sentinel_t) const { return element_ == nullptr; }

 private:
  Source& source_;
  decltype(source_.next()) element_;
};

}  // namespace stagecoach
