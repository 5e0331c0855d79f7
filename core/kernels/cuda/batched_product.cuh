#pragma once
/// @file
/// Many matrix products of one size in one launch: a block finds its pair of matrices by blockIdx.z. The tiles are
/// those of the tiled kernel of matrix_product.cuh.

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

/// The part of a product that is computed, in tiles: all, or what a causal mask leaves.
enum class ProductPart {
  all,
  lower_result,  ///< n <= m: the scores of query m and key n
  lower_a,       ///< k <= m: a(m, k) is 0 beyond the diagonal
  upper_a,       ///< k >= m: a(m, k) is 0 before the diagonal
};

/// Rows of the result are `row` apart; each value is multiplied by `factor`.
template <class T>
struct BatchedResult {
  T* data;
  int row;
  BatchOffsets offsets;
  T factor = 1;
  ProductPart part = ProductPart::all;
  __device__ void store(int m, int n, T value) const {
    data[offsets.here() + static_cast<long long>(m) * row + n] = factor * value;
  }
  /// Restricts a block's work to the part. Returns whether any is left.
  __device__ bool clip(BlockRange& range) const {
    if (part == ProductPart::lower_a && range.k_end > range.m + kTile) {
      range.k_end = range.m + kTile;
    } else if (part == ProductPart::upper_a) {
      range.k_begin = range.m;
    }
    return part != ProductPart::lower_result || range.n <= range.m;
  }
};

template <class T, class A, class B>
__global__ void __launch_bounds__(kTile* kTile) batched_product(A a, B b, Output<T, BatchedResult<T>> out) {
  STAGECOACH_SHARED(SmallTiles<T>, tiles);
  BlockRange range(out.e, kTile, kTile, out.e.k);
  if (out.result.clip(range)) {
    multiply_in_shared(tiles, range, a, b, out);
  }
}

inline constexpr std::int64_t kMaxBatches = 65535;  ///< the limit of a grid's third dimension

/// Computes one product of extents `e` per batch. Does nothing if there are none.
template <class T, class A, class B>
void multiply_batches(Device device, std::int64_t batches, const ProductExtents& e, const A& a, const B& b,
                      const BatchedResult<T>& result) {
  const int blocks = block_tile(ProductKernel::tiled, e).blocks(e);
  const dim3 grid(static_cast<unsigned>(blocks), 1, static_cast<unsigned>(to_int(batches, kMaxBatches)));
  if (batches > 0 && blocks > 0) {
    launch(batched_product<T, A, B>, grid, kTile * kTile, 0, compute_stream(device), a, b,
           Output<T, BatchedResult<T>>{result, nullptr, e});
  }
}

}  // namespace stagecoach::cuda
