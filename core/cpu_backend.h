#pragma once
/// @file
/// What the rest of the core asks of the CPU: the twin of cuda_backend.h. The threads are in parallel_for.h.

#include <memory>

namespace stagecoach {

class Allocator;

namespace cpu {

/// The allocator of logical device cpu:`index`, which exists.
const std::shared_ptr<Allocator>& allocator(int index);

}  // namespace cpu
}  // namespace stagecoach
