#pragma once
/// @file
/// The fifth kernel of matrix_product.cuh: products on the tensor cores of compute capability 9.0, in TF32 (wgmma).
/// There a warpgroup of 128 threads multiplies at once, and its tensor cores read both factors from shared memory by
/// themselves.
///
/// Two things follow. The threads no longer load what they multiply: of the three moves of a value in the fourth kernel
/// (from memory into a register, into shared memory, and for each warp into a register again) two are left. And the
/// product runs beside the threads: they load the next tile meanwhile. So there are two tiles in shared memory, one
/// that is multiplied and one that is filled, and one barrier per tile.

#include "core/cuda/device_code.h"
#include "core/cuda/tensor_core.h"
#include "core/kernels/cuda/tensor_cores.cuh"
#include "core/kernels/cuda/tile_loader.cuh"

namespace stagecoach::cuda {

/// kM x kN of the result per block, 64 x 128 of them per warpgroup.
template <int kM_, int kN_>
struct WarpgroupTiles {
  static constexpr int kM = kM_;
  static constexpr int kN = kN_;
  static constexpr int kK = 16;
  static constexpr int kStep = 8;                         // along K, in one instruction
  static constexpr int kAcross = kN / kWarpgroupColumns;  // warpgroups along N
  static constexpr int kThreads = kWarpgroup * kAcross * (kM / kWarpgroupRows);
};

/// kMn rows of `a` or columns of `b`, in core matrices: [k / 4][mn][k % 4]. The four additional rows let threads that
/// store two core matrices which are adjacent along K use different banks.
template <int kMn, int kK>
struct alignas(128) CoreMatrices {
  static constexpr int kAlongK = (kMn + 4) * kCoreK;  // floats between core matrices that are adjacent along K
  float at[kK / kCoreK][kMn + 4][kCoreK];             // rounded to TF32

  /// Returns the factor whose first row is `mn`.
  __device__ SharedFactor factor(int mn) const { return shared_factor(at[0][mn], kAlongK); }
};

template <int kMn, int kK>
__device__ void put_value(CoreMatrices<kMn, kK>& tile, int k, int mn, float value) {
  tile.at[k / kCoreK][mn][k % kCoreK] = value;
}

/// Four values that are adjacent along K are adjacent in memory.
template <int kMn, int kK, int kCount>
__device__ void put_along_k(CoreMatrices<kMn, kK>& tile, int k, int mn, const float (&values)[kCount]) {
  static_assert(kCount % kCoreK == 0);
#pragma unroll
  for (int i = 0; i < kCount; i += kCoreK) {
    *reinterpret_cast<Vector<float, kCoreK>*>(tile.at[k / kCoreK + i / kCoreK][mn]) = {
        {values[i], values[i + 1], values[i + 2], values[i + 3]}};
  }
}

template <class Tile>
struct WarpgroupFactors {
  CoreMatrices<Tile::kM, Tile::kK> a;
  CoreMatrices<Tile::kN, Tile::kK> b;
};

/// A warpgroup's part of the product, which begins at (row, column) of the tile.
template <class Tile>
class WarpgroupSums {
 public:
  __device__ WarpgroupSums(const WarpgroupFactors<Tile>& factors, int row, int column)
      : row_(row), column_(column), a_(factors.a.factor(row)), b_(factors.b.factor(column)) {}

  /// Starts to add the product of the factors that are `number` after those of the constructor.
  __device__ __forceinline__ void start(int number) {
    constexpr int kFloats = sizeof(WarpgroupFactors<Tile>) / sizeof(float);
    begin_products();
#pragma unroll
    for (int d = 0; d < Tile::kK; d += Tile::kStep) {
      start_product(sums_, a_ + (number * kFloats + d / kCoreK * CoreMatrices<Tile::kM, Tile::kK>::kAlongK),
                    b_ + (number * kFloats + d / kCoreK * CoreMatrices<Tile::kN, Tile::kK>::kAlongK));
    }
    end_products();
  }

  /// Stores the sums at the tile's position in the result.
  template <class Out>
  __device__ void store(const Out& out, const BlockRange& tile) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) % kWarpgroup / 32;
    const int m = tile.m + row_ + 16 * warp + lane / 4;
#pragma unroll
    for (int j = 0; j < kWarpgroupColumns / 8; ++j) {
      const int n = tile.n + column_ + 8 * j + lane % 4 * 2;
      out.store(m, n, Vector2<float>{{sums_[4 * j], sums_[4 * j + 1]}});
      out.store(m + 8, n, Vector2<float>{{sums_[4 * j + 2], sums_[4 * j + 3]}});
    }
  }

 private:
  int row_;
  int column_;
  SharedFactor a_;
  SharedFactor b_;
  float sums_[kWarpgroupSums] = {};
};

template <class Tile, class A, class B>
struct WarpgroupShared {
  WarpgroupFactors<Tile> factors[2];
  typename DoubleBuffer<float, Tile, A, B>::Tables tables;
};

template <class Tile, class A, class B, class Out>
__global__ void __launch_bounds__(Tile::kThreads, 2) product_warpgroups(A a, B b, Out out, int k_per_split) {
  using Shared = WarpgroupShared<Tile, A, B>;
  STAGECOACH_SHARED(Shared, shared);
  const BlockRange range(out.e, Tile::kM, Tile::kN, k_per_split);
  const int group = static_cast<int>(threadIdx.x) / kWarpgroup;
  WarpgroupSums<Tile> sums(shared.factors[0], group / Tile::kAcross * kWarpgroupRows,
                           group % Tile::kAcross * kWarpgroupColumns);
  DoubleBuffer<float, Tile, A, B> buffer(a, b, range, shared.tables);
  int filled = 0;
  for (int k = range.k_begin; k < range.k_end; k += Tile::kK) {
    buffer.put(a, b, shared.tables, shared.factors[filled], RoundToTf32{});
    publish_to_tensor_cores();
    wait_for_products();  // of the other factors, which the next `put` overwrites
    __syncthreads();      // the factors are complete, and no warpgroup reads the others
    sums.start(filled);
    buffer.load(a, b, shared.tables);
    filled = 1 - filled;
  }
  wait_for_products();
  sums.store(out, range);
}

template <class A, class B, class Out>
void launch_warpgroups(cudaStream_t stream, dim3 grid, const BlockTile& tile, const A& a, const B& b, const Out& out,
                       int k_per_split) {
  using Low = WarpgroupTiles<64, 256>;
  using Square = WarpgroupTiles<128, 128>;
  if (tile.m == Low::kM) {
    launch(product_warpgroups<Low, A, B, Out>, grid, Low::kThreads, 0, stream, a, b, out, k_per_split);
  } else {
    launch(product_warpgroups<Square, A, B, Out>, grid, Square::kThreads, 0, stream, a, b, out, k_per_split);
  }
}

}  // namespace stagecoach::cuda
