#pragma once
/// @file
/// The resources of one logical GPU: its two streams and its allocator.

#include <memory>

#include "core/allocator.h"
#include "core/cuda/handles.h"
#include "core/stream.h"

namespace stagecoach::cuda {

/// Makes the GPU of `device` the current one for the CUDA calls of this CPU thread. Every other function here does so.
void select(Device device);

/// Returns the stream on which all operations of `device` run.
cudaStream_t compute_stream(Device device);
/// Returns the CUDA stream of `stream`. Throws Error for an id that is neither Stream::kCompute nor Stream::kCopies.
cudaStream_t raw(const Stream& stream);

/// Returns whether this thread is recording work of any device.
bool is_recording();

/// Allocates this thread's new tensors on `device` from `memory` until the end of the scope.
class AllocateFrom {
 public:
  AllocateFrom(Device device, std::shared_ptr<Allocator> memory);
  ~AllocateFrom();
  AllocateFrom(const AllocateFrom&) = delete;
  AllocateFrom& operator=(const AllocateFrom&) = delete;
};

}  // namespace stagecoach::cuda
