#pragma once
/// @file
/// Thrust on a stream. In a file of its own, as Thrust's headers take long to compile.

#include <thrust/execution_policy.h>
#include <thrust/system_error.h>

#include "core/cuda/device_code.h"

namespace stagecoach::cuda {

/// Calls body(policy) with the Thrust policy that runs on `stream` and does not wait. Throws Error where Thrust fails.
template <class Body>
void with_thrust(cudaStream_t stream, const Body& body) {
#ifdef STAGECOACH_EMULATED
  emulation::give(stream, [=] { body(thrust::seq); });
#else
  try {
    body(thrust::cuda::par_nosync.on(stream));
  } catch (const thrust::system_error& error) {
    thrust_failed(error.what());
  }
#endif
}

}  // namespace stagecoach::cuda
