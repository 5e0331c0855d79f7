#pragma once
/// @file
/// Streams of the emulation: work is done when it is given, or, while the stream is recorded, kept for the graph.

#include <cuda_runtime.h>

#include <functional>

namespace stagecoach::cuda::emulation {

/// Does `work` now, or records it.
void give(cudaStream_t stream, std::function<void()> work);

/// For calls that a thread must not make while it records, unless it insists (cudaThreadExchangeStreamCaptureMode):
/// cudaErrorStreamCaptureUnsupported then.
cudaError_t unless_recording();

}  // namespace stagecoach::cuda::emulation
