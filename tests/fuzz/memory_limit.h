#pragma once
/// @file
/// A bound on what a target allocates.

#include <cstddef>

namespace stagecoach::fuzz {

/// From now on the process may hold `bytes` more than it does. With the address sanitizer whatever allocates beyond
/// that ends the process with a message and a stack; without it, memory runs out.
void limit_memory(std::size_t bytes);

}  // namespace stagecoach::fuzz
