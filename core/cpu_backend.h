#pragma once
/// @file
/// What the rest of the core asks of the CPU: the twin of cuda_backend.h. The threads are in parallel_for.h.

#include <memory>

#include "core/device.h"

namespace stagecoach {

class Allocator;

namespace cpu {

/// The allocator of a device of type cpu. Throws UsageError unless it exists.
const std::shared_ptr<Allocator>& allocator(Device device);

}  // namespace cpu
}  // namespace stagecoach
