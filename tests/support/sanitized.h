#pragma once
/// @file
/// Whether a sanitizer watches what is tested: it takes memory, threads and `new` for itself, and several times as
/// long.

#include <utility>

namespace stagecoach::test {

/// Not a macro: so a test is the same object with and without the address sanitizer, and is compiled once.
extern const bool kSanitized;

/// Returns the larger form of a test, or with a sanitizer the smaller one: fewer sizes, shorter trainings. Both must
/// run the same code. A sanitizer finds mistakes in code, whatever the sizes; that all sizes give the same bytes is for
/// the run without sanitizers.
template <class T>
T unless_sanitized(T larger, T smaller) {
  return kSanitized ? std::move(smaller) : std::move(larger);
}

}  // namespace stagecoach::test
