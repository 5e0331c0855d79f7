#pragma once
/// @file
/// Cleans up at the end of a scope, whether or not an exception ends it.

#include <utility>

namespace stagecoach {

/// `const OnExit close([&] { file.close(); });` closes the file when the scope ends. The body must not throw.
template <class Body>
class [[nodiscard]] OnExit {
 public:
  explicit OnExit(Body body) : body_(std::move(body)) {}
  ~OnExit() { body_(); }
  OnExit(const OnExit&) = delete;
  OnExit& operator=(const OnExit&) = delete;

 private:
  Body body_;
};

}  // namespace stagecoach
