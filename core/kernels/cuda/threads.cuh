#pragma once
/// @file
/// The launch extents of elementwise kernels, and the element of each thread.

#include <type_traits>

#include "core/cuda/device_code.h"
#include "core/cuda/queues.h"

namespace stagecoach::cuda {

inline constexpr int kThreads = 256;

/// Returns the number of blocks of kThreads threads for `count` elements.
inline dim3 blocks_for(long long count) { return {static_cast<unsigned>((count + kThreads - 1) / kThreads)}; }

/// Launches kernel(count, arguments…) with a thread for each of `count` elements, unless there are none.
template <class Count, class... Parameters>
void launch_elements(Device device, void (*kernel)(Count, Parameters...), std::type_identity_t<Count> count,
                     std::type_identity_t<Parameters>... arguments) {
  if (count > 0) {
    launch(kernel, blocks_for(count), kThreads, 0, compute_stream(device), count, arguments...);
  }
}

/// Returns the index of this thread's element.
__device__ inline long long element() { return static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; }

}  // namespace stagecoach::cuda
