#pragma once
/// @file
/// How many blocks and threads, and which element is whose.

#include "core/cuda/device_code.h"

namespace stagecoach::cuda {

inline constexpr int kThreads = 256;

/// Blocks of kThreads for `count` elements.
inline dim3 blocks_for(long long count) { return {static_cast<unsigned>((count + kThreads - 1) / kThreads)}; }

/// This thread's element.
__device__ inline long long element() { return static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; }

}  // namespace stagecoach::cuda
