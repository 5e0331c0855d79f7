#pragma once
/// @file
/// Kernels over the rows of [N, C]. A warp works on a short row, four of them in a block, and a whole block on a long
/// one.

#include "core/kernels/cuda/block_reduce.cuh"

namespace stagecoach::cuda {

inline constexpr int kWarp = 32;
inline constexpr int kRowBlockThreads = 128;
inline constexpr int kShortRow = 256;  ///< elements that a warp sums as fast as a block, which waits at barriers

/// The row of this thread, and its number among the kThreads that share the row. Threads whose row does not exist may
/// return at once, before any barrier, if they are whole warps.
template <int kThreads>
struct RowThread {
  int row = static_cast<int>(blockIdx.x) * (kRowBlockThreads / kThreads) + static_cast<int>(threadIdx.x) / kThreads;
  int index = static_cast<int>(threadIdx.x) % kThreads;
};

/// The shared memory of a row's reductions. A warp, or a part of one, needs none: its threads read each other's
/// registers.
template <class T, int kThreads>
struct RowReduction : BlockReduction<T, kThreads> {};
template <class T, int kThreads>
requires(kThreads <= kWarp) struct RowReduction<T, kThreads> {
};

/// Returns the reduction of `value` over the threads of the row. All of them must call it, and whole warps. The order
/// of the operations is fixed, and the operation must be commutative.
template <int kThreads, class T, class Operation>
__device__ T reduce_row(RowReduction<T, kThreads>& shared, T value, Operation operation) {
  if constexpr (kThreads <= kWarp) {
    for (int distance = kThreads / 2; distance > 0; distance /= 2) {
      value = operation(value, __shfl_xor_sync(0xffffffffU, value, distance));
    }
    return value;
  } else {
    return reduce_block(shared, value, operation);
  }
}

/// log(softmax(row)[c]) = (row[c] - max) - log_sum. The maximum is subtracted first, so that nothing overflows, and is
/// kept apart, so that a large common offset costs no digits.
template <class T>
struct LogSoftmax {
  T max;
  T sum;  // of exp(row[c] - max)
  T log_sum;
  __device__ T operator()(T value) const { return (value - max) - log_sum; }
};

// All threads of the row must call these; `index` is the thread's number among them.

/// Returns the largest element of one row; NaN if the first one is.
template <int kThreads, class T>
__device__ T max_of_row(RowReduction<T, kThreads>& reduction, int index, const T* row, int width) {
  T max = row[0];  // if that is NaN, every thread keeps it, and no thread keeps another NaN
  for (int c = index; c < width; c += kThreads) {
    max = Max{}(max, row[c]);
  }
  return reduce_row<kThreads>(reduction, max, Max{});
}

/// Returns the index of the first element of one row that equals `value`; 0 if none does.
template <int kThreads, class T>
__device__ int find_in_row(RowReduction<int, kThreads>& reduction, int index, const T* row, int width, T value) {
  int distance = 0;  // from the element to the end of the row
  for (int c = index; c < width; c += kThreads) {
    distance = row[c] == value ? Max{}(distance, width - c) : distance;
  }
  distance = reduce_row<kThreads>(reduction, distance, Max{});
  return distance == 0 ? 0 : width - distance;
}

/// Returns the LogSoftmax of one row.
template <int kThreads, class T>
__device__ LogSoftmax<T> log_softmax_of(RowReduction<T, kThreads>& reduction, int index, const T* row, int classes) {
  const T max = max_of_row<kThreads>(reduction, index, row, classes);
  T sum = 0;
  for (int c = index; c < classes; c += kThreads) {
    sum += exp(row[c] - max);
  }
  sum = reduce_row<kThreads>(reduction, sum, Sum{});
  return {max, sum, log(sum)};
}

/// Calls body<kThreads>(blocks), with the threads per row for rows of `width` elements, unless there are no rows.
template <class Body>
void with_threads_for(int rows, int width, const Body& body) {
  constexpr int kRows = kRowBlockThreads / kWarp;
  if (rows > 0 && width <= kShortRow) {
    body.template operator()<kWarp>(static_cast<unsigned>((rows + kRows - 1) / kRows));
  } else if (rows > 0) {
    body.template operator()<kRowBlockThreads>(static_cast<unsigned>(rows));
  }
}

}  // namespace stagecoach::cuda
