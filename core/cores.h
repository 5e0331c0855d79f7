#pragma once
/// @file
/// The cores of this process.

#include <vector>

namespace stagecoach {

/// The cores that this process may use: those of its main thread, as other threads may be pinned to one of them. None
/// where the system does not tell.
std::vector<int> usable_cores();

/// Lets the calling thread run on `cores` only. A hint: where that is refused the thread runs all the same.
void run_on_cores(const std::vector<int>& cores);

}  // namespace stagecoach
