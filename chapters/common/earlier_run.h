#pragma once
/// @file
/// Makes room for a new run in a folder that an older run has written to, and loses nothing of that.

#include <filesystem>

namespace stagecoach {

/// Moves what an earlier run left in `folder` to `earlier-1` (or -2, …) below it, and reports that on standard output.
/// Everything else in the folder stays. Throws DataError when a file cannot be moved.
void move_earlier_run(const std::filesystem::path& folder);

}  // namespace stagecoach
