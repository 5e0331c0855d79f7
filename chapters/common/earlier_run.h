#pragma once
/// @file
/// Makes room for a new run in a folder with the files of an older run, without losing them.

#include <filesystem>

namespace stagecoach {

/// Moves the files of an earlier run from `folder` to its subfolder `earlier-1` (or -2, …), and reports that on
/// standard output. Everything else in the folder stays. Throws DataError if a file cannot be moved.
void move_earlier_run(const std::filesystem::path& folder);

}  // namespace stagecoach
