#pragma once
/// @file
/// Device code for a GPU; see core/cuda/device_code.h.

#include <cuda_runtime.h>

#include <type_traits>

#include "core/cuda/overlap.h"

#define STAGECOACH_SHARED(Type, name) __shared__ Type name

namespace stagecoach::cuda {

/// The attribute of a launch that core/cuda/overlap.h is about.
inline cudaLaunchAttribute before_the_end_of_the_last() {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  return attribute;
}

template <class... Parameters>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
            std::type_identity_t<Parameters>... arguments) {
  void* pointers[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
  const void* code = reinterpret_cast<const void*>(kernel);
  cudaLaunchAttribute attribute = before_the_end_of_the_last();
  const cudaLaunchConfig_t configuration{grid, block, shared_bytes, stream, &attribute, kernels_overlap() ? 1U : 0U};
  if (const cudaError_t error = cudaLaunchKernelExC(&configuration, code, pointers); error != cudaSuccess) {
    launch_failed(error, code, grid, block, shared_bytes);
  }
}

}  // namespace stagecoach::cuda

#ifdef __CUDACC__
namespace stagecoach::cuda {

__device__ inline void wait_for_earlier_kernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

template <class T>
__device__ T load_if(bool inside, const T* address, T outside = 0) {
  __builtin_assume(__isGlobal(address));  // else each load might have to ask which memory it is
  return inside ? *address : outside;
}

}  // namespace stagecoach::cuda
#endif
