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

/// Returns the stream on which all operations of `device` run: while this thread records, the recording's.
cudaStream_t compute_stream(Device device);
/// Returns the CUDA stream of `stream`. Throws Error for an id that is neither Stream::kCompute nor Stream::kCopies.
cudaStream_t raw(const Stream& stream);

/// Returns whether this thread is recording work of any device.
bool is_recording();

/// Lets this thread's operations on `device` use `stream`, and its new tensors `memory`, until the end of the scope.
/// Other threads, which may let the device's own stream wait for something, are no part of the recording.
class RecordOn {
 public:
  RecordOn(Device device, cudaStream_t stream, std::shared_ptr<Allocator> memory);
  ~RecordOn();
  RecordOn(const RecordOn&) = delete;
  RecordOn& operator=(const RecordOn&) = delete;
};

}  // namespace stagecoach::cuda
