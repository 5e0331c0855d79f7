#pragma once
/// @file
/// Copies between the CPU and a GPU, or between asynchronous CPU devices, that overlap with the devices' work. A copy
/// to any other CPU device is done when the call returns; from one, the caller may overwrite the source at once.

#include <map>
#include <utility>

#include "core/stream.h"
#include "core/tensor.h"

namespace stagecoach {

/// Returns an uninitialised CPU tensor from which `device` can copy while the CPU continues (pinned memory, for a GPU).
Tensor staging_tensor(const Shape& shape, DType dtype, Device device);

/// Returns whether operations on one of the devices can use the other's memory in place: both are CPUs, or slots of one
/// GPU, whose streams must be ordered by events.
bool shares_memory(Device one, Device other);

/// Copies `source` to `out` (same shape and type) on the copy stream of the GPU involved, or of the asynchronous device
/// that is copied from (else to), after all work submitted to both devices so far; the caller does not wait. Work that
/// reads `out`, and a CPU that overwrites `source`, must wait for the returned event. Throws Error while work is being
/// recorded (core/replay.h).
Event copy_async(const Tensor& source, Tensor& out);

/// Copies after `ready`, when the source has its elements, and `buffer_free`, when the memory of `out` is free, instead
/// of after all work submitted to the device so far.
Event copy_async(const Tensor& source, Tensor& out, const Event& ready, const Event& buffer_free);

/// Returns the bytes that Tensor::to has copied in calls of this thread so far, by the devices from and to.
const std::map<std::pair<Device, Device>, double>& bytes_moved();

}  // namespace stagecoach
