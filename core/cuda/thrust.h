#pragma once
/// @file
/// Passes over whole arrays by Thrust. In the preset `emulated` a header of tests/emulation takes the place of this
/// one.

#include <thrust/execution_policy.h>
#include <thrust/system_error.h>

#include "core/cuda/check.h"

namespace stagecoach::cuda {

/// Calls body(policy) with the Thrust policy that runs on `stream` and does not wait. Throws Error where Thrust fails.
template <class Body>
void with_thrust(cudaStream_t stream, const Body& body) {
  try {
    body(thrust::cuda::par_nosync.on(stream));
  } catch (const thrust::system_error& error) {
    thrust_failed(error.what());
  }
}

}  // namespace stagecoach::cuda
