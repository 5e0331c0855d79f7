#pragma once
/// @file
/// Neighbours in memory that a thread reads or writes at once: fewer instructions for the same bytes.

#include <cstdint>

#include "core/cuda/device_code.h"

namespace stagecoach::cuda {

template <class T, int kCount>
struct alignas(kCount * sizeof(T)) Neighbours {
  T at[kCount];
};

template <class T>
using Two = Neighbours<T, 2>;

/// Whether an array can be taken as Neighbours<T, kCount>: a tensor may be a view of another, from anywhere in it.
template <int kCount, class T>
__host__ __device__ bool is_aligned(const T* data) {
  return reinterpret_cast<std::uintptr_t>(data) % alignof(Neighbours<T, kCount>) == 0;
}

/// Calls body<4>() where rows of `count` elements of all arrays can be taken in fours, else body<1>().
template <class Body, class... Arrays>
void in_fours_or_ones(std::int64_t count, const Body& body, const Arrays*... arrays) {
  if (count % 4 == 0 && (... && is_aligned<4>(arrays))) {
    body.template operator()<4>();
  } else {
    body.template operator()<1>();
  }
}

/// function(inputs…), neighbour by neighbour.
template <class T, int kCount, class Function, class... Inputs>
__device__ Neighbours<T, kCount> map_neighbours(const Function& function, Inputs... inputs) {
  Neighbours<T, kCount> results;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    results.at[i] = function(inputs.at[i]...);
  }
  return results;
}

}  // namespace stagecoach::cuda
