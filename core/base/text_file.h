#pragma once
/// @file
/// Files that are read and written whole.

#include <filesystem>
#include <string>

namespace stagecoach {

/// Returns the bytes of a file. Throws DataError, whose text ends with `advice`, if it cannot be read.
std::string read_text(const std::filesystem::path& path, const std::string& advice);
/// Writes `text` as a whole file or not at all (atomic_file.h).
void write_text(const std::filesystem::path& path, const std::string& text);

}  // namespace stagecoach
