#pragma once
/// @file
/// Copies between the CPU and a GPU beside the GPU's work. On CPU devices the same calls copy at once.

#include "core/stream.h"
#include "core/tensor.h"

namespace stagecoach {

/// An unset tensor in CPU memory from which `device` can copy while the CPU goes on (pinned memory, for a GPU).
Tensor staging_tensor(const Shape& shape, DType dtype, Device device);

/// Copies `source` to `out` (same shape and type) on the copy stream of the GPU of the two, after the work that it has
/// so far; the caller does not wait. Work that reads `out`, and a CPU that writes to `source`, waits for the event
/// that this returns. Not within work that is recorded (core/replay.h): that throws.
Event copy_async(const Tensor& source, Tensor& out);

/// The same, but only after `ready`, when the source has its elements, and `room`, when the memory of `out` is free:
/// not after all that the device of the source was given since.
Event copy_async(const Tensor& source, Tensor& out, const Event& ready, const Event& room);

}  // namespace stagecoach
