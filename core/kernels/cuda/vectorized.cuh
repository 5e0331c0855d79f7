#pragma once
/// @file
/// Vectorized access: a thread loads or stores several adjacent elements at once, with fewer instructions.

#include <cstdint>

#include "core/cuda/device_code.h"

namespace stagecoach::cuda {

template <class T, int kCount>
struct alignas(kCount * sizeof(T)) Vector {
  T at[kCount];
};

template <class T>
using Vector2 = Vector<T, 2>;

/// Returns kCount elements from an aligned address on.
template <int kCount, class T>
__device__ Vector<T, kCount>& vector_at(T* data) {
  return *reinterpret_cast<Vector<T, kCount>*>(data);
}
template <int kCount, class T>
__device__ const Vector<T, kCount>& vector_at(const T* data) {
  return *reinterpret_cast<const Vector<T, kCount>*>(data);
}

/// Returns whether an array is aligned for Vector<T, kCount>: a tensor may be a view that starts anywhere in another.
template <int kCount, class T>
__host__ __device__ bool is_aligned(const T* data) {
  return reinterpret_cast<std::uintptr_t>(data) % alignof(Vector<T, kCount>) == 0;
}

/// Calls body<4>() if rows of `count` elements of all arrays are whole vectors of 4, otherwise body<1>().
template <class Body, class... Arrays>
void with_vector_width(std::int64_t count, const Body& body, const Arrays*... arrays) {
  if (count % 4 == 0 && (... && is_aligned<4>(arrays))) {
    body.template operator()<4>();
  } else {
    body.template operator()<1>();
  }
}

/// Returns function(inputs…), computed element by element.
template <class T, int kCount, class Function, class... Inputs>
__device__ Vector<T, kCount> map_vector(const Function& function, Inputs... inputs) {
  Vector<T, kCount> results;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    results.at[i] = function(inputs.at[i]...);
  }
  return results;
}

}  // namespace stagecoach::cuda
