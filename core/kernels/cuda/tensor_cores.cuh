#pragma once
/// @file
/// The fourth kernel of matrix_product.cuh: products on tensor cores in TF32, which has the range of float32 and 10
/// bits of its fraction. Sums stay float32. Needs compute capability 8.0.

#include <mma.h>

#include "core/cuda/device_code.h"
#include "core/kernels/cuda/product_parts.cuh"

// What older GPUs lack the compiler lacks for them too.
#if defined(STAGECOACH_EMULATED) || __CUDA_ARCH__ >= 800
#define STAGECOACH_HAS_TF32
#endif

namespace stagecoach::cuda {

/// 2 x 4 warps make 64 x 128 of the result; each makes 32 x 32 as 2 x 2 pieces of 16 x 16.
struct WarpTile {
  static constexpr int kDepth = 16;
  static constexpr int kPiece = 16;
  static constexpr int kStep = 8;  // of the depth, in one instruction
  static constexpr int kPieces = 2;
  static constexpr int kWarpRows = 2;
  static constexpr int kWarpColumns = 4;
  static constexpr int kThreads = 32 * kWarpRows * kWarpColumns;
};

struct alignas(32) TensorCoreTiles {
  float a[WarpTile::kDepth][kTensorCoreTile.rows + 8];                       // [k][m]
  float b[WarpTile::kDepth][kTensorCoreTile.columns + 8];                    // [k][n]
  float piece[WarpTile::kThreads / 32][WarpTile::kPiece][WarpTile::kPiece];  // one a warp, on the way out
};

#ifdef STAGECOACH_HAS_TF32

using PieceOfA =
    nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 8, nvcuda::wmma::precision::tf32, nvcuda::wmma::col_major>;
using PieceOfB =
    nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 8, nvcuda::wmma::precision::tf32, nvcuda::wmma::row_major>;
using PieceOfSum = nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 8, float>;

/// On the way into shared memory: once, though several warps will read it.
struct RoundToTf32 {
  __device__ float operator()(float value) const { return nvcuda::wmma::__float_to_tf32(value); }
};

/// sums += the product of the tiles, for this warp's part, which begins at (row, column) of the tile.
__device__ inline void multiply_pieces(const TensorCoreTiles& tiles, int row, int column,
                                       PieceOfSum (&sums)[WarpTile::kPieces][WarpTile::kPieces]) {
#pragma unroll
  for (int d = 0; d < WarpTile::kDepth; d += WarpTile::kStep) {
    PieceOfA a[WarpTile::kPieces];
    PieceOfB b[WarpTile::kPieces];
#pragma unroll
    for (int i = 0; i < WarpTile::kPieces; ++i) {
      nvcuda::wmma::load_matrix_sync(a[i], &tiles.a[d][row + i * WarpTile::kPiece], kTensorCoreTile.rows + 8);
      nvcuda::wmma::load_matrix_sync(b[i], &tiles.b[d][column + i * WarpTile::kPiece], kTensorCoreTile.columns + 8);
    }
#pragma unroll
    for (int i = 0; i < WarpTile::kPieces; ++i) {
#pragma unroll
      for (int j = 0; j < WarpTile::kPieces; ++j) {
        nvcuda::wmma::mma_sync(sums[i][j], a[i], b[j], sums[i][j]);
      }
    }
  }
}

/// Which thread holds which element of a piece is not said, so it goes through shared memory.
template <class Result>
__device__ void store_piece(const PieceOfSum& sum, float (&piece)[WarpTile::kPiece][WarpTile::kPiece], int row,
                            int column, const ProductExtents& e, const Result& result) {
  nvcuda::wmma::store_matrix_sync(&piece[0][0], sum, WarpTile::kPiece, nvcuda::wmma::mem_row_major);
  __syncwarp();
  for (int at = static_cast<int>(threadIdx.x) % 32; at < WarpTile::kPiece * WarpTile::kPiece; at += 32) {
    const int m = row + at / WarpTile::kPiece;
    const int n = column + at % WarpTile::kPiece;
    if (m < e.rows && n < e.columns) {
      result.store(m, n, static_cast<int>(blockIdx.y), piece[at / WarpTile::kPiece][at % WarpTile::kPiece]);
    }
  }
  __syncwarp();
}

#endif

template <class A, class B, class Result>
__global__ void __launch_bounds__(WarpTile::kThreads)
    product_tensor_cores(A a, B b, Result result, ProductExtents e, int depth_of_slice) {
#ifdef STAGECOACH_HAS_TF32
  STAGECOACH_SHARED(TensorCoreTiles, tiles);
  const Place place(e, kTensorCoreTile.rows, kTensorCoreTile.columns, depth_of_slice);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int row = warp / WarpTile::kWarpColumns * WarpTile::kPieces * WarpTile::kPiece;
  const int column = warp % WarpTile::kWarpColumns * WarpTile::kPieces * WarpTile::kPiece;
  Fetch<float, kTensorCoreTile.rows, WarpTile::kDepth, WarpTile::kThreads, A> fetch_a(a, place.row);
  Fetch<float, kTensorCoreTile.columns, WarpTile::kDepth, WarpTile::kThreads, B> fetch_b(b, place.column);
  PieceOfSum sums[WarpTile::kPieces][WarpTile::kPieces];
  for (auto& sums_of_row : sums) {
    for (PieceOfSum& sum : sums_of_row) {
      nvcuda::wmma::fill_fragment(sum, 0.0F);
    }
  }
  fetch_a.load(a, place.begin, place.end);
  fetch_b.load(b, place.begin, place.end);
  for (int k = place.begin; k < place.end; k += WarpTile::kDepth) {
    fetch_a.put(tiles.a, RoundToTf32{});
    fetch_b.put(tiles.b, RoundToTf32{});
    __syncthreads();
    fetch_a.load(a, k + WarpTile::kDepth, place.end);
    fetch_b.load(b, k + WarpTile::kDepth, place.end);
    multiply_pieces(tiles, row, column, sums);
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < WarpTile::kPieces; ++i) {
#pragma unroll
    for (int j = 0; j < WarpTile::kPieces; ++j) {
      store_piece(sums[i][j], tiles.piece[warp], place.row + row + i * WarpTile::kPiece,
                  place.column + column + j * WarpTile::kPiece, e, result);
    }
  }
#else
  __trap();  // compiled for an older GPU: rather no result than a wrong one
#endif
}

template <class A, class B, class Result>
void launch_tensor_cores(cudaStream_t stream, dim3 grid, const A& a, const B& b, const Result& result,
                         const ProductExtents& e, int depth_of_slice) {
  launch(product_tensor_cores<A, B, Result>, grid, WarpTile::kThreads, 0, stream, a, b, result, e, depth_of_slice);
}

}  // namespace stagecoach::cuda
#undef STAGECOACH_HAS_TF32
