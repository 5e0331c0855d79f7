#pragma once
/// @file
/// The CPU cores that this process may use.

#include <vector>

namespace stagecoach {

/// Returns the cores that this process may use: those of its main thread, because other threads may be pinned to a
/// single core. Empty if the system does not report them.
std::vector<int> usable_cores();

/// Restricts the calling thread to `cores`. A hint: if the system refuses, the thread runs on any core.
void run_on_cores(const std::vector<int>& cores);

}  // namespace stagecoach
