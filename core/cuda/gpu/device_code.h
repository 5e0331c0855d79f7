#pragma once
/// @file
/// Device code for a GPU; see core/cuda/device_code.h.

#include <cuda_runtime.h>

#include <type_traits>

#define STAGECOACH_SHARED(Type, name) __shared__ Type name

namespace stagecoach::cuda {

template <class... Parameters>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
            std::type_identity_t<Parameters>... arguments) {
  void* pointers[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
  const void* code = reinterpret_cast<const void*>(kernel);
  if (const cudaError_t error = cudaLaunchKernel(code, grid, block, pointers, shared_bytes, stream);
      error != cudaSuccess) {
    launch_failed(error, code, grid, block, shared_bytes);
  }
}

}  // namespace stagecoach::cuda

#ifdef __CUDACC__
#include <thrust/execution_policy.h>
namespace stagecoach::cuda {

template <class T>
__device__ T load_if(bool inside, const T* address, T outside = 0) {
  return inside ? __ldg(address) : outside;
}

inline auto on_stream(cudaStream_t stream) { return thrust::cuda::par_nosync.on(stream); }
}  // namespace stagecoach::cuda
#endif
