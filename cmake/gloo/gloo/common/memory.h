#pragma once
/// @file
/// What the headers of Gloo's TCP transport include and Debian's package libgloo-dev (5b14351) lacks: the members of
/// these classes, of which only the size and the copies matter here. Gloo's library has the rest.

#include <memory>

namespace gloo {

template <class T>
class NonOwningPtr {
  std::shared_ptr<T> ptr_;
};

template <class T>
class ShareableNonOwningPtr;

template <class T>
class WeakNonOwningPtr {
 public:
  WeakNonOwningPtr() = default;
  explicit WeakNonOwningPtr(const ShareableNonOwningPtr<T>& from) : ptr_(from.ptr_) {}

 private:
  std::weak_ptr<T> ptr_;
};

template <class T>
class ShareableNonOwningPtr {
  std::shared_ptr<T> ptr_;
  friend class WeakNonOwningPtr<T>;
};

}  // namespace gloo
