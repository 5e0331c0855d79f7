#pragma once
/// @file
/// The launch extents of elementwise kernels, and the element of each thread.

#include "core/cuda/device_code.h"

namespace stagecoach::cuda {

inline constexpr int kThreads = 256;

/// Returns the number of blocks of kThreads threads for `count` elements.
inline dim3 blocks_for(long long count) { return {static_cast<unsigned>((count + kThreads - 1) / kThreads)}; }

/// Returns the index of this thread's element.
__device__ inline long long element() { return static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; }

}  // namespace stagecoach::cuda
