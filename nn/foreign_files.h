#pragma once
/// @file
/// Recognises the files that are most often given where safetensors are expected.

#include <string>
#include <string_view>

namespace stagecoach::safetensors {

/// How many bytes foreign_format needs.
inline constexpr std::size_t kForeignBytes = 32;

/// Returns what a file with this `beginning` is, and what to do: "expected safetensors, but it is a Git LFS pointer …;
/// run …". Returns "" if it may be safetensors.
std::string foreign_format(std::string_view beginning);

}  // namespace stagecoach::safetensors
