#pragma once
/// @file
/// The memory available to this process, and what happens when it runs out.

#include <cstdint>
#include <string>

namespace stagecoach {

/// Returns how many bytes this process can still allocate: the minimum of the machine's free memory (swap included),
/// what its control group still allows, and what `ulimit -v` still allows. The largest number if the system does not
/// report any.
std::uint64_t available_memory();

/// Throws DataError that names `what`, a file, if fewer than `bytes` bytes are available. Called before they are
/// allocated: some systems promise any amount, and kill the process when it is used.
void require_memory_for(const std::string& what, std::uint64_t bytes);

/// Reserves some memory for the moment when no more is available: to report the error, to tell other ranks, to leave
/// files in a consistent state. The first `new` that fails frees the reserve, and still throws std::bad_alloc.
void keep_memory_reserve();
/// Returns whether memory has run out in this way.
bool has_memory_run_out();

}  // namespace stagecoach
