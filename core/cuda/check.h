#pragma once
/// @file
/// Checks for calls of the CUDA runtime. Every call is checked, and an error names the call and its source location.

#include <cuda_runtime.h>

namespace stagecoach::cuda {

/// Throws Error: "cudaMalloc(&memory, bytes): out of memory (cudaErrorMemoryAllocation) [core/cuda/memory.cpp:31]".
[[noreturn]] void call_failed(cudaError_t error, const char* call, const char* file, int line);
/// Throws Error: "kernel stagecoach::cuda::sum_rows<float>: invalid configuration argument (…); grid 1 x 1 x 1, …".
[[noreturn]] void launch_failed(cudaError_t error, const void* kernel, dim3 grid, dim3 block, std::size_t shared_bytes);
/// Throws Error: "Thrust: " followed by the message of Thrust.
[[noreturn]] void thrust_failed(const char* what);

}  // namespace stagecoach::cuda

/// Makes a call to the CUDA runtime; throws Error unless it succeeds.
#define STAGECOACH_CUDA(call)                                                                        \
  do {                                                                                               \
    if (const cudaError_t stagecoach_error = (call); stagecoach_error != cudaSuccess) [[unlikely]] { \
      ::stagecoach::cuda::call_failed(stagecoach_error, #call, __FILE__, __LINE__);                  \
    }                                                                                                \
  } while (false)
