#pragma once
/// @file
/// Thrust on its host system, in place of the header of this name in core/.

#include <cuda_runtime.h>  // that of the emulation
#include <thrust/execution_policy.h>

#include "tests/emulation/stream.h"

namespace stagecoach::cuda {

template <class Body>
void with_thrust(cudaStream_t stream, const Body& body) {
  emulation::give(stream, [=] { body(thrust::seq); });
}

}  // namespace stagecoach::cuda
