#pragma once
/// @file
/// Block-wide reductions by CUB, whose result all threads receive. The order of the operations is fixed.

#include <cub/block/block_reduce.cuh>

#include "core/cuda/device_code.h"

namespace stagecoach::cuda {

/// The shared memory of a reduction.
template <class T, int kThreads>
struct BlockReduction {
  typename cub::BlockReduce<T, kThreads>::TempStorage storage;
  T result;
};

struct Sum {
  template <class T>
  __device__ T operator()(const T& a, const T& b) const {
    return a + b;
  }
};
struct Max {
  template <class T>
  __device__ T operator()(const T& a, const T& b) const {
    return a < b ? b : a;
  }
};

/// Two sums that are computed in one pass, such as those of the gradients of a weight and a bias.
template <class T>
struct TwoSums {
  T products;
  T values;
  __device__ TwoSums operator+(const TwoSums& other) const {
    return {products + other.products, values + other.values};
  }
};

/// Returns the reduction of `value` over the block. All threads of the block must call it.
template <int kThreads, class T, class Operation>
__device__ T reduce_block(BlockReduction<T, kThreads>& shared, const T& value, Operation operation) {
  const T reduced = cub::BlockReduce<T, kThreads>(shared.storage).Reduce(value, operation);
  if (threadIdx.x == 0) {
    shared.result = reduced;
  }
  __syncthreads();  // the result is complete
  const T result = shared.result;
  __syncthreads();  // all threads have read it: `shared` may be reused
  return result;
}

}  // namespace stagecoach::cuda
