#pragma once
/// @file
/// Kernels in which a block works on one row of [N, C], reducing over it by CUB.

#include "core/kernels/cuda/block_reduce.cuh"

namespace stagecoach::cuda {

/// A warp is enough for ten classes; a thousand want more.
inline constexpr int kFewThreads = 32;
inline constexpr int kManyThreads = 128;

/// log(softmax(row)[c]) = (row[c] - largest) - log_sum. The largest is taken out first, so that nothing overflows, and
/// is kept apart, so that a large offset common to all costs no digits.
template <class T>
struct LogSoftmax {
  T largest;
  T log_sum;
  __device__ T operator()(T value) const { return (value - largest) - log_sum; }
};

/// That of one row, by all threads of the block.
template <int kThreads, class T>
__device__ LogSoftmax<T> log_softmax_of(BlockReduction<T, kThreads>& reduction, const T* row, int classes) {
  T largest = row[0];
  for (int c = static_cast<int>(threadIdx.x); c < classes; c += kThreads) {
    largest = Largest{}(largest, row[c]);
  }
  largest = reduce_block(reduction, largest, Largest{});
  T sum = 0;
  for (int c = static_cast<int>(threadIdx.x); c < classes; c += kThreads) {
    sum += exp(row[c] - largest);
  }
  sum = reduce_block(reduction, sum, Sum{});
  return {largest, log(sum)};
}

/// Calls `body` with the number of threads as its template argument: few threads for short rows.
template <class Body>
void with_threads_for(int classes, const Body& body) {
  if (classes <= kFewThreads) {
    body.template operator()<kFewThreads>();
  } else {
    body.template operator()<kManyThreads>();
  }
}

}  // namespace stagecoach::cuda
