#pragma once
/// @file
/// The functions that the rest of the core needs from the CPU backend: the counterpart of cuda_backend.h. Its threads
/// are in parallel_for.h.

#include <memory>

#include "core/device.h"

namespace stagecoach {

class Allocator;

namespace cpu {

/// Returns the allocator of a device of type cpu. Throws UsageError unless the device exists.
const std::shared_ptr<Allocator>& allocator(Device device);

}  // namespace cpu
}  // namespace stagecoach
