#pragma once
/// @file
/// Copies from the GPU's memory into shared memory that pass no register (cp.async, from compute capability 8.0 on). In
/// the preset `emulated` a header of tests/emulation replaces this one. Source: PTX ISA, "Data Movement and Conversion
/// Instructions: Asynchronous copy".

#include <cuda_runtime.h>

#include <cstdint>

namespace stagecoach::cuda {

/// Starts to copy 16 bytes, which are aligned in both memories.
__device__ __forceinline__ void start_copy(float* shared, const float* global) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(shared))),
      "l"(__cvta_generic_to_global(global))
      : "memory");
#else
  __trap();  // compiled for an older GPU: no result is better than a wrong one
#endif
}

/// Waits for all copies that this thread has started. Other threads see them after the next barrier.
__device__ __forceinline__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

}  // namespace stagecoach::cuda
