#pragma once
/// @file
/// The kernels of asynchronous CPU devices: each row appends a call of the CPU's row to the device's compute stream.

#include "core/kernels/kernels.h"
#include "core/stream.h"

namespace stagecoach {

/// Returns the table for asynchronous devices. Its calls run the rows of `cpu`, which must live on.
const Kernels& queued_kernels(const Kernels& cpu);

/// Appends a copy to `stream`. The caller's events order it, and what uses `out` or overwrites `source` later.
void queue_copy(const Tensor& source, Tensor& out, const Stream& stream);

}  // namespace stagecoach
