#pragma once
/// @file
/// What device code needs besides the language of nvcc, above all `launch`. In the preset `emulated` the same sources
/// are plain C++, and a header of tests/emulation replaces this one.
///
/// Both forms define
///   kIsEmulated: whether kernels run on the CPU,
///   launch(kernel, grid, block, shared_bytes, stream, arguments…), which throws Error with the kernel's name,
///   predicated_load(inside, address, outside = 0): the value at `address`, in the GPU's memory, or else `outside`,
///   fast_exp2(x): 2^x by one instruction, to within 2 units of the last place; subnormal numbers are 0,
///   meet(): a barrier for all threads of a block whose warps run different code; __syncthreads() must be one and the
///   same call for all of them,
///   STAGECOACH_SHARED(Type, name): `name` is one object shared by the threads of a block, initially uninitialised,
///   STAGECOACH_DYNAMIC_SHARED(Type, name): the same for a type of more than 48 KiB; `launch` is given its size.

#include <cuda_runtime.h>

#include <type_traits>

#include "core/cuda/check.h"

#define STAGECOACH_SHARED(Type, name) __shared__ Type name
#define STAGECOACH_DYNAMIC_SHARED(Type, name)                            \
  extern __shared__ __align__(128) unsigned char dynamic_shared_bytes[]; \
  Type& name = *reinterpret_cast<Type*>(dynamic_shared_bytes)

namespace stagecoach::cuda {

inline constexpr bool kIsEmulated = false;
inline constexpr std::size_t kMaxStaticShared = 48 << 10;  ///< bytes that a block has without asking for more

template <class... Parameters>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
            std::type_identity_t<Parameters>... arguments) {
  void* pointers[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
  const void* code = reinterpret_cast<const void*>(kernel);
  cudaError_t error = cudaSuccess;
  if (shared_bytes > kMaxStaticShared) {
    error = cudaFuncSetAttribute(code, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
  }
  if (error == cudaSuccess) {
    error = cudaLaunchKernel(code, grid, block, pointers, shared_bytes, stream);
  }
  if (error != cudaSuccess) {
    launch_failed(error, code, grid, block, shared_bytes);
  }
}

}  // namespace stagecoach::cuda

#ifdef __CUDACC__
namespace stagecoach::cuda {

template <class T>
__device__ T predicated_load(bool inside, const T* address, T outside = 0) {
  __builtin_assume(__isGlobal(address));  // otherwise each load might have to check the address space
  return inside ? *address : outside;
}

__device__ inline float fast_exp2(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

__device__ inline void meet() {
  asm volatile("barrier.sync 0;" ::: "memory");  // unlike bar.sync, threads may execute it at different places
}

}  // namespace stagecoach::cuda
#endif
