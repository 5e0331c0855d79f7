#pragma once
/// @file
/// Checks that a call fails, and that the text of its error names what it should.

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "core/base/error.h"

namespace stagecoach::test {

/// True when `body` throws an E whose text holds every one of `parts`.
template <class E = Error, class Body>
::testing::AssertionResult fails_with(std::initializer_list<const char*> parts, const Body& body) {
  try {
    body();
  } catch (const E& error) {
    const std::string text = error.what();
    for (const char* part : parts) {
      if (text.find(part) == std::string::npos) {
        return ::testing::AssertionFailure() << "'" << part << "' is not in: " << text;
      }
    }
    return ::testing::AssertionSuccess();
  } catch (const std::exception& error) {
    return ::testing::AssertionFailure() << "another kind of error: " << error.what();
  }
  return ::testing::AssertionFailure() << "nothing was thrown";
}

}  // namespace stagecoach::test
