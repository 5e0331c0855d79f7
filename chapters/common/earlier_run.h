#pragma once
/// @file
/// Makes room for a new run in a folder that an older one has written to: nothing of that is lost.

#include <filesystem>

namespace stagecoach {

/// Moves what an earlier run left in `folder` to `earlier-1` (or -2, …) below it, and says so on standard output. What
/// else is there stays. Throws DataError when it cannot be moved.
void move_earlier_run(const std::filesystem::path& folder);

}  // namespace stagecoach
