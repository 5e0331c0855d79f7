#pragma once
/// @file
/// An event that a thread can wait for with poll(), together with sockets.

#include <array>

namespace stagecoach {

/// Any thread may set it and wait for it.
class Wakeup {
 public:
  Wakeup();
  ~Wakeup();
  Wakeup(const Wakeup&) = delete;
  Wakeup& operator=(const Wakeup&) = delete;

  /// Returns the descriptor that is readable from set() to clear(), or -1 if the system had no more descriptors: then
  /// set() and clear() do nothing.
  int descriptor() const { return ends_[0]; }
  void set() const;
  void clear() const;

 private:
  std::array<int, 2> ends_;  // to read from and to write to; they may be one
};

}  // namespace stagecoach
