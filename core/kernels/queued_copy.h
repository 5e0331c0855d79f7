#pragma once
/// @file
/// Copies to, from and between asynchronous CPU devices.

#include "core/stream.h"
#include "core/tensor.h"

namespace stagecoach {

/// Copies within a device, or between devices in the order of the program: the row of asynchronous devices.
void queued_copy(const Tensor& source, Tensor& out);
/// Appends a copy to `stream`. The caller's events order it, and what uses `out` or overwrites `source` later.
void queue_copy(const Tensor& source, Tensor& out, const Stream& stream);

}  // namespace stagecoach
