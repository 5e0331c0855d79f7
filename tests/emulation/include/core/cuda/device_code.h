#pragma once
/// @file
/// Device code as plain C++, for a machine without a GPU, in place of the header of this name in core/.

#include <cuda_runtime.h>  // that of the emulation

#include <cmath>
#include <type_traits>

#include "core/cuda/check.h"
#include "tests/emulation/block.h"
#include "tests/emulation/stream.h"

#define STAGECOACH_SHARED(Type, name) \
  Type& name = *static_cast<Type*>(::stagecoach::cuda::emulation::shared(sizeof(Type), alignof(Type)))
#define STAGECOACH_DYNAMIC_SHARED(Type, name) STAGECOACH_SHARED(Type, name)

namespace stagecoach::cuda {

inline constexpr bool kIsEmulated = true;

template <class... Parameters>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
            std::type_identity_t<Parameters>... arguments) {
  const void* code = reinterpret_cast<const void*>(kernel);
  if (const cudaError_t error = emulation::check_launch(grid, block, shared_bytes); error != cudaSuccess) {
    launch_failed(error, code, grid, block, shared_bytes);
  }
  emulation::give(stream, [=] {
    const auto thread = [&] { kernel(arguments...); };
    emulation::run(code, grid, block, shared_bytes,
                   {&thread, [](const void* body) { (*static_cast<decltype(&thread)>(body))(); }});
  });
}

template <class T>
T predicated_load(bool inside, const T* address, T outside = 0) {
  return inside ? *address : outside;
}

inline float fast_exp2(float x) { return std::exp2(x); }

inline void meet() { __syncthreads(); }

}  // namespace stagecoach::cuda
