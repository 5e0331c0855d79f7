#pragma once
/// @file
/// What one logical GPU owns: its two streams and its allocator.

#include <memory>

#include "core/allocator.h"
#include "core/cuda/handles.h"
#include "core/stream.h"

namespace stagecoach::cuda {

/// Makes the GPU of `device` the one that this CPU thread's calls are for. Every other function here does it.
void select(Device device);

/// The stream of `device` that all its operations run on.
cudaStream_t compute_stream(Device device);
/// The stream that `stream` names. Throws Error for an id that is neither Stream::kCompute nor Stream::kCopies.
cudaStream_t raw(const Stream& stream);

/// Whether this thread records work of any device.
bool is_recording();

/// Until the end of the scope this thread's new tensors on `device` come from `memory`.
class AllocateFrom {
 public:
  AllocateFrom(Device device, std::shared_ptr<Allocator> memory);
  ~AllocateFrom();
  AllocateFrom(const AllocateFrom&) = delete;
  AllocateFrom& operator=(const AllocateFrom&) = delete;
};

}  // namespace stagecoach::cuda
