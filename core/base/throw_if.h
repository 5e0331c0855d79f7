#pragma once
/// @file
/// The errors of core/base/error.h, and how to throw one in one statement.

#include <fmt/format.h>

#include <utility>

#include "core/base/error.h"

namespace stagecoach {

/// Throws `Kind` if `condition` holds. The other arguments are a fmt format string and its values.
template <class Kind, class... Values>
void throw_if(bool condition, fmt::format_string<Values...> text, Values&&... values) {
  if (condition) [[unlikely]] {
    throw Kind(fmt::format(text, std::forward<Values>(values)...));
  }
}

}  // namespace stagecoach
