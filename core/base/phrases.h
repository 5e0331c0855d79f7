#pragma once
/// @file
/// Numbers and lists in texts.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stagecoach {

/// Returns "1 class" or "3 classes": `count`, and `noun` in the plural unless the count is 1. The plural is regular: in
/// "es" after s, x, ch or sh, except in "epochs", and in "s" otherwise.
std::string counted(std::int64_t count, std::string_view noun);

/// Returns "a, b, c, and 2 more": the first three texts, and how many follow.
std::string first_few(const std::vector<std::string>& texts);

}  // namespace stagecoach
