#pragma once
/// @file
/// A second thread of control on the same CPU thread, with a stack of its own.

#include <array>
#include <cstddef>
#include <memory>

namespace stagecoach::cuda::emulation {

/// Runs a function that may stop in its midst and go on later.
class Fiber {
 public:
  /// `body(context)` runs at the first resume(). It must not return and not throw: it ends by calling pause() last.
  Fiber(void (*body)(void* context), void* context);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Called from outside: goes on in the fiber until it pauses.
  void resume();
  /// Called from inside: continues after resume().
  void pause();

 private:
  using Place = std::array<void*, 5>;  // what __builtin_setjmp saves: where to go on, and on which stack

  void start();
  static void enter(unsigned high, unsigned low);
  static void leave(Place& from, Place& to);

  static constexpr std::size_t kStackBytes = 128 << 10;
  void (*body_)(void*);
  void* context_;
  std::unique_ptr<char[]> stack_;
  bool started_ = false;
  Place inside_{};
  Place outside_{};
  // What the address sanitizer wants to know about the two stacks.
  void* fake_inside_ = nullptr;
  void* fake_outside_ = nullptr;
  const void* outside_bottom_ = nullptr;
  std::size_t outside_bytes_ = 0;
};

}  // namespace stagecoach::cuda::emulation
