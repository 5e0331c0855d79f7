#pragma once
/// @file
/// How much memory there is, and what happens when it runs out.

#include <cstdint>
#include <string>

namespace stagecoach {

/// Bytes that this process can still get: the least of what the machine has free (swap included), what its control
/// group leaves it, and what `ulimit -v` does. The largest number where the system does not tell.
std::uint64_t available_memory();

/// Throws DataError that names `what`, a file, when there are fewer than `bytes` bytes, before they are asked for: some
/// systems promise any amount, and end the process when it is used.
void require_memory_for(const std::string& what, std::uint64_t bytes);

/// From now on some memory is kept for the moment when there is no more: to say so, to tell other ranks, to put files
/// in order. The first `new` that finds none frees it, and throws std::bad_alloc all the same.
void keep_memory_reserve();
/// Whether that has happened.
bool has_memory_run_out();

}  // namespace stagecoach
