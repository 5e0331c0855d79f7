#pragma once
/// @file
/// A fuzz target is one reader of the project, called with bytes that nobody meant for it. Each `*_fuzz.cpp` defines
/// the function below, in the form of libFuzzer, so that libFuzzer and our own `mutate.cpp` run the same targets.
///
/// A reader may refuse an input with the errors that its header documents. Anything else is a find: another exception,
/// a crash, a sanitizer's report, memory beyond a limit, or a call that does not end.

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace stagecoach::fuzz {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Calls `body`. Returns false when it throws one of `Documented`; every other exception passes through.
template <class... Documented, class Body>
bool accepts(const Body& body) {
  try {
    body();
    return true;
  } catch (const std::exception& error) {
    if ((... || (dynamic_cast<const Documented*>(&error) != nullptr))) {
      return false;
    }
    throw;
  }
}

/// What was read must also be right: throws what no reader documents unless `condition` holds.
inline void require(bool condition, const char* what) {
  if (!condition) {
    throw std::logic_error(what);
  }
}

}  // namespace stagecoach::fuzz
