#pragma once
/// @file
/// How a chapter prints what the libraries say, which know parameters but no flags.

#include <string>

namespace stagecoach {

/// Returns `text` with the flag instead of each parameter that a library names in backticks. What a library
/// calls timeout, for example, becomes --timeout. Everything else is unchanged.
std::string name_flags(std::string text);

}  // namespace stagecoach
