#pragma once
/// @file
/// Kernels with one block per row of [N, C], which reduces the row by CUB.

#include "core/kernels/cuda/block_reduce.cuh"

namespace stagecoach::cuda {

/// Threads per block: a warp is enough for ten classes, not for a thousand.
inline constexpr int kShortRowThreads = 32;
inline constexpr int kLongRowThreads = 128;

/// log(softmax(row)[c]) = (row[c] - max) - log_sum. The maximum is subtracted first, so that nothing overflows, and is
/// kept apart, so that a large common offset costs no digits.
template <class T>
struct LogSoftmax {
  T max;
  T sum;  // of exp(row[c] - max)
  T log_sum;
  __device__ T operator()(T value) const { return (value - max) - log_sum; }
};

/// Returns the LogSoftmax of one row. All threads of the block must call it.
template <int kThreads, class T>
__device__ LogSoftmax<T> log_softmax_of(BlockReduction<T, kThreads>& reduction, const T* row, int classes) {
  T max = row[0];
  for (int c = static_cast<int>(threadIdx.x); c < classes; c += kThreads) {
    max = Max{}(max, row[c]);
  }
  max = reduce_block(reduction, max, Max{});
  T sum = 0;
  for (int c = static_cast<int>(threadIdx.x); c < classes; c += kThreads) {
    sum += exp(row[c] - max);
  }
  sum = reduce_block(reduction, sum, Sum{});
  return {max, sum, log(sum)};
}

/// Calls `body` with the number of threads as its template argument: few threads for short rows.
template <class Body>
void with_threads_for(int classes, const Body& body) {
  if (classes <= kShortRowThreads) {
    body.template operator()<kShortRowThreads>();
  } else {
    body.template operator()<kLongRowThreads>();
  }
}

}  // namespace stagecoach::cuda
