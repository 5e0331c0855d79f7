#pragma once
/// @file
/// What the kernels of matrix_product.cuh share: where a block works, and how its threads fetch a tile together.

#include "core/cuda/device_code.h"
#include "core/kernels/cuda/product_plan.h"

namespace stagecoach::cuda {

/// Where this block works: its tile of the result and its slice of the depth.
struct Place {
  __device__ Place(const ProductExtents& e, int tile_rows, int tile_columns, int depth_of_slice) {
    // Down the rows first: blocks that run together want the same columns, which are the large operand.
    const int down = (e.rows + tile_rows - 1) / tile_rows;
    row = static_cast<int>(blockIdx.x) % down * tile_rows;
    column = static_cast<int>(blockIdx.x) / down * tile_columns;
    begin = static_cast<int>(blockIdx.y) * depth_of_slice;
    end = begin + depth_of_slice < e.depth ? begin + depth_of_slice : e.depth;
  }
  int row;
  int column;
  int begin;  // of the depth
  int end;
};

struct AsItIs {
  template <class T>
  __device__ T operator()(T value) const {
    return value;
  }
};

/// One thread's share of fetching kOuter x kDepth elements of an operand.
template <class T, int kOuter, int kDepth, int kThreads, class Operand>
class Fetch {
 public:
  static constexpr int kCount = kOuter * kDepth / kThreads;
  static_assert(kCount * kThreads == kOuter * kDepth, "the threads share the tile evenly");

  __device__ Fetch(const Operand& operand, int first) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      outer_[i] = operand.outer(first + outer_of(i));
    }
  }
  /// From memory into registers: the values arrive while the thread goes on.
  __device__ void load(const Operand& operand, int begin, int end) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int k = begin + depth_of(i);
      values_[i] = k < end ? operand.load(outer_[i], operand.depth(k)) : T(0);
    }
  }
  /// From registers into shared memory, through `change`.
  template <int kPitch, class Change = AsItIs>
  __device__ void put(T (&tile)[kDepth][kPitch], Change change = {}) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      tile[depth_of(i)][outer_of(i)] = change(values_[i]);
    }
  }

 private:
  __device__ static int outer_of(int i) {
    const int thread = static_cast<int>(threadIdx.x);
    if constexpr (Operand::kDepthInARow) {
      return (i * kThreads + thread) / kDepth;
    } else if constexpr (kThreads % kOuter == 0) {
      return thread % kOuter;  // the same for all i
    } else {
      return (i * kThreads + thread) % kOuter;
    }
  }
  __device__ static int depth_of(int i) {
    const int at = i * kThreads + static_cast<int>(threadIdx.x);
    return Operand::kDepthInARow ? at % kDepth : at / kOuter;
  }

  typename Operand::Outer outer_[kCount];
  T values_[kCount];
};

}  // namespace stagecoach::cuda
