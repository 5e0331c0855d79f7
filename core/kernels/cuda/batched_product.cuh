#pragma once
/// @file
/// Many matrix products of one size in one launch: a block finds its pair of matrices by blockIdx.z. The kernel is the
/// tiled one of matrix_product.cuh.

#include "core/kernels/cuda/matrix_product.cuh"

namespace stagecoach::cuda {

/// Where the matrices of a batch begin: in a tensor [B, M, N] one after the other; the heads of attention side by side
/// in the rows of each sample.
struct BatchOffsets {
  int inner;               // matrices per sample
  long long outer_stride;  // between samples
  long long inner_stride;  // between the matrices of a sample
  __device__ long long here() const {
    const int batch = static_cast<int>(blockIdx.z);
    return batch / inner * outer_stride + batch % inner * inner_stride;
  }
};

/// Element (mn, k) is at mn * mn_stride + k * k_stride in the matrix of this block.
template <class T, bool kContiguousK_>
struct BatchedOperand {
  static constexpr bool kContiguousK = kContiguousK_;
  using Mn = int;  // offsets
  using K = int;
  MatrixOperand<T, kContiguousK_> matrix;
  BatchOffsets offsets;
  __device__ Mn mn(int index) const { return matrix.mn(index); }
  __device__ K k(int index, int end) const { return matrix.k(index, end); }
  __device__ T load(Mn mn, K k) const { return load_at(matrix.data + offsets.here(), mn + k); }
};

/// Rows of the result are `row` apart; each value is multiplied by `factor`.
template <class T>
struct BatchedResult {
  T* data;
  int row;
  BatchOffsets offsets;
  T factor = 1;
  __device__ void store(int m, int n, T value) const {
    data[offsets.here() + static_cast<long long>(m) * row + n] = factor * value;
  }
};

inline constexpr std::int64_t kMaxBatches = 65535;  ///< the limit of a grid's third dimension

/// Computes one product of extents `e` per batch. Does nothing if there are none.
template <class T, class A, class B>
void multiply_batches(Device device, std::int64_t batches, const ProductExtents& e, const A& a, const B& b,
                      const BatchedResult<T>& result) {
  const int blocks = block_tile(ProductKernel::tiled, e).blocks(e);
  const dim3 grid(static_cast<unsigned>(blocks), 1, static_cast<unsigned>(to_int(batches, kMaxBatches)));
  if (batches > 0 && blocks > 0) {
    using Out = Output<T, BatchedResult<T>>;
    launch(product_tiled<T, A, B, Out>, grid, kTile * kTile, 0, compute_stream(device), a, b, Out{result, nullptr, e},
           e.k);
  }
}

}  // namespace stagecoach::cuda
