#pragma once
/// @file
/// Scopes that change how a thread behaves.

namespace stagecoach {

/// The base of such scopes, which may be nested: `class NoGrad : public ThreadScope<NoGrad> {}`.
template <class Scope>
class ThreadScope {
 public:
  ThreadScope() { ++depth_; }
  ~ThreadScope() { --depth_; }
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

  /// Returns whether this thread is in a scope of this kind.
  static bool is_active() { return depth_ > 0; }

 private:
  static constinit inline thread_local int depth_ = 0;
};

}  // namespace stagecoach
