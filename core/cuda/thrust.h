#pragma once
/// @file
/// Runs Thrust algorithms over whole arrays. In the preset `emulated` a header of tests/emulation replaces this one.

#include <thrust/execution_policy.h>
#include <thrust/system_error.h>

#include "core/cuda/check.h"

namespace stagecoach::cuda {

/// Calls body(policy) with the Thrust policy that runs on `stream` without waiting. Throws Error if Thrust fails.
template <class Body>
void with_thrust(cudaStream_t stream, const Body& body) {
  try {
    body(thrust::cuda::par_nosync.on(stream));
  } catch (const thrust::system_error& error) {
    thrust_failed(error.what());
  }
}

}  // namespace stagecoach::cuda
