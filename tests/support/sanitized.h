#pragma once
/// @file
/// Whether a sanitizer watches what is tested: it takes memory, threads and `new` for itself, and several times as
/// long.

#include <utility>

namespace stagecoach::test {

#ifdef STAGECOACH_SANITIZED
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// Returns the larger form of a test, or with a sanitizer the smaller one: fewer sizes, shorter trainings. Both must
/// run the same code. A sanitizer finds mistakes in code, whatever the sizes; that all sizes give the same bytes is for
/// the run without sanitizers.
template <class T>
T unless_sanitized(T larger, T smaller) {
  return kSanitized ? std::move(smaller) : std::move(larger);
}

}  // namespace stagecoach::test
