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
#include "core/kernels/cuda/vector_loader.cuh"

namespace stagecoach::cuda {

/// kM x kN of the result per block, 64 x kColumns of them per warpgroup, in steps of kK along K. The core matrices have
/// kPad additional rows.
template <int kM_, int kN_, int kK_ = 16, int kPad_ = 4>
struct WarpgroupTiles {
  static constexpr int kM = kM_;
  static constexpr int kN = kN_;
  static constexpr int kK = kK_;
  static constexpr int kPad = kPad_;
  static constexpr int kStep = 8;  // along K, in one instruction
  static constexpr int kColumns = kN % 128 == 0 ? 128 : 64;
  static constexpr int kAcross = kN / kColumns;  // warpgroups along N
  static constexpr int kThreads = kWarpgroup * kAcross * (kM / kWarpgroupRows);
  // Per SM, so that a thread has 128 registers, or 168 where it has many sums and loads many values.
  static constexpr int kBlocks = kThreads == 128 && kColumns == 128 ? 3 : 512 / kThreads;
};

/// kMn rows of `a` or columns of `b`, in core matrices: [k / 4][mn][k % 4]. The additional rows let threads that store
/// core matrices which are adjacent along K use different banks: four where a warp stores two of them, value by value,
/// and one where eight threads store a row in each of eight.
template <int kMn, int kK, int kPad>
struct alignas(128) CoreMatrices {
  static constexpr int kAlongK = (kMn + kPad) * kCoreK;  // floats between core matrices that are adjacent along K
  float at[kK / kCoreK][kMn + kPad][kCoreK];             // rounded to TF32

  /// Returns the factor whose first row is `mn`.
  __device__ StridedFactor factor(int mn) const { return strided_factor(at[0][mn], kAlongK, kCoreRows * kCoreK); }
  /// Returns the four values from (k, mn) on, which are adjacent along K; k is a multiple of 4.
  __device__ Vector4& row(int k, int mn) { return reinterpret_cast<Vector4&>(at[k / kCoreK][mn]); }
};

template <int kMn, int kK, int kPad>
__device__ void put_value(CoreMatrices<kMn, kK, kPad>& tile, int k, int mn, float value) {
  tile.at[k / kCoreK][mn][k % kCoreK] = value;
}

template <int kMn, int kK, int kPad, int kCount>
__device__ void put_along_k(CoreMatrices<kMn, kK, kPad>& tile, int k, int mn, const float (&values)[kCount]) {
  static_assert(kCount % kCoreK == 0);
#pragma unroll
  for (int i = 0; i < kCount; i += kCoreK) {
    tile.row(k + i, mn) = {{values[i], values[i + 1], values[i + 2], values[i + 3]}};
  }
}

template <class Tile>
struct WarpgroupFactors {
  CoreMatrices<Tile::kM, Tile::kK, Tile::kPad> a;
  CoreMatrices<Tile::kN, Tile::kK, Tile::kPad> b;
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
      start_product(sums_, a_ + (number * kFloats + d / kCoreK * decltype(WarpgroupFactors<Tile>::a)::kAlongK),
                    b_ + (number * kFloats + d / kCoreK * decltype(WarpgroupFactors<Tile>::b)::kAlongK));
    }
    end_products();
  }

  /// Stores the sums at the tile's position in the result.
  template <class Out>
  __device__ void store(const Out& out, const BlockRange& tile) const {
    const int m = first_row(tile);
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const int n = first_column(tile) + 8 * j;
      out.store(m, n, pair(j, 0));
      out.store(m + 8, n, pair(j, 1));
    }
  }

  /// Likewise in rows of whole pairs, without a decision per pair. The biases are read first, as loads would wait for
  /// stores between them.
  __device__ void store(const OutputRows<float>& out, int rows, const BlockRange& tile) const {
    Vector2<float> bias[kPairs] = {};
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const int n = first_column(tile) + 8 * j;
      if (out.bias != nullptr && n < out.columns) {
        bias[j] = {{out.bias[n], out.bias[n + 1]}};
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int m = first_row(tile) + 8 * half;
      float* row = out.data + static_cast<long long>(m) * out.pitch + first_column(tile);
#pragma unroll
      for (int j = 0; j < kPairs; ++j) {
        if (m < rows && first_column(tile) + 8 * j < out.columns) {
          const Vector2<float> sums = pair(j, half);
          reinterpret_cast<Vector2<float>&>(row[8 * j]) = {{sums.at[0] + bias[j].at[0], sums.at[1] + bias[j].at[1]}};
        }
      }
    }
  }

 private:
  static constexpr int kPairs = Tile::kColumns / 8;  // per row; a thread has two rows

  __device__ int first_row(const BlockRange& tile) const {
    return tile.m + row_ + static_cast<int>(threadIdx.x) % kWarpgroup / 32 * 16 +
           static_cast<int>(threadIdx.x) % 32 / 4;
  }
  __device__ int first_column(const BlockRange& tile) const {
    return tile.n + column_ + static_cast<int>(threadIdx.x) % 4 * 2;
  }
  __device__ Vector2<float> pair(int j, int half) const {
    return {{sums_[4 * j + 2 * half], sums_[4 * j + 2 * half + 1]}};
  }

  int row_;
  int column_;
  StridedFactor a_;
  StridedFactor b_;
  float sums_[Tile::kColumns / 2] = {};
};

template <class Tile, class A, class B>
struct WarpgroupShared {
  WarpgroupFactors<Tile> factors[2];
  typename DoubleBuffer<float, Tile, A, B>::Tables tables;
};

template <class Tile, class A, class B, class Out>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks)
    product_warpgroups(A a, B b, Out out, int k_per_split) {
  using Shared = WarpgroupShared<Tile, A, B>;
  STAGECOACH_SHARED(Shared, shared);
  const BlockRange range(out.e, Tile::kM, Tile::kN, k_per_split);
  const int group = static_cast<int>(threadIdx.x) / kWarpgroup;
  WarpgroupSums<Tile> sums(shared.factors[0], group / Tile::kAcross * kWarpgroupRows,
                           group % Tile::kAcross * Tile::kColumns);
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

// ---- The same for matrices in memory

/// Stores the sums of a's tile over K, of which each thread has some, in the column of the result after b's last one.
template <class Tile, class Loader, class Shared, class Out>
__device__ void store_row_sums(const Vector4& sums, Shared& shared, const Out& out, const BlockRange& tile,
                               int column) {
  static_assert(sizeof(Shared) >= sizeof(float[Loader::kParts][Tile::kM]));
  auto& parts = reinterpret_cast<float(&)[Loader::kParts][Tile::kM]>(shared);
  Loader::put_sums(parts, sums);
  __syncthreads();  // all sums are complete
  if (const int m = static_cast<int>(threadIdx.x); m < Tile::kM) {
    float sum = 0;
    for (int part = 0; part < Loader::kParts; ++part) {
      sum += parts[part][m];
    }
    out.store(tile.m + m, column, sum);
  }
}

/// Loads by vectors. The steps along K are twice as long, as more of the time is spent waiting for memory, and there is
/// one tile in shared memory: the products are short. If the result has a column more than `b`, that is the sums of a's
/// rows.
template <class Tile, class A, class B, class Out>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks) product_vectors(A a, B b, Out out, int k_per_split) {
  using Factors = WarpgroupFactors<Tile>;
  using LoaderA = VectorLoader<Tile::kM, Tile::kK, Tile::kThreads, A::kContiguousK>;
  using LoaderB = VectorLoader<Tile::kN, Tile::kK, Tile::kThreads, B::kContiguousK>;
  STAGECOACH_SHARED(Factors, factors);
  const BlockRange range(out.e, Tile::kM, Tile::kN, k_per_split);
  const int group = static_cast<int>(threadIdx.x) / kWarpgroup;
  WarpgroupSums<Tile> sums(factors, group / Tile::kAcross * kWarpgroupRows, group % Tile::kAcross * Tile::kColumns);
  const bool has_row_sums = !A::kContiguousK && b.extent < out.e.n && range.n == 0;
  Vector4 row_sums{};
  LoaderA load_a(a, range.m);
  LoaderB load_b(b, range.n);
  load_a.load(range.k_begin, range.k_end);
  load_b.load(range.k_begin, range.k_end);
  for (int k = range.k_begin; k < range.k_end; k += Tile::kK) {
    load_a.put(factors.a);
    load_b.put(factors.b);
    if constexpr (!A::kContiguousK) {
      if (has_row_sums) {
        load_a.add_to(row_sums);
      }
    }
    publish_to_tensor_cores();
    __syncthreads();  // the factors are complete
    sums.start(0);
    load_a.load(k + Tile::kK, range.k_end);
    load_b.load(k + Tile::kK, range.k_end);
    wait_for_products();
    __syncthreads();  // no warpgroup reads the factors
  }
  if (const OutputRows<float> rows = out.rows(b.extent); rows.data != nullptr) {
    sums.store(rows, out.e.m, range);
  }
  if constexpr (!A::kContiguousK) {
    if (has_row_sums) {
      store_row_sums<Tile, LoaderA>(row_sums, factors, out, range, b.extent);
    }
  }
}

// ---- Launching them

/// Whether the operands and the result may be rows of whole vectors.
template <class A, class B, class Out>
constexpr bool kMayBeVectors = requires(const A& a, const B& b, const Out& out) {
  a.vectors();
  b.vectors();
  out.result.rows();
};

template <int kM, int kN, class A, class B, class Out>
void launch_warpgroup_tile(cudaStream_t stream, dim3 grid, const A& a, const B& b, const Out& out, int k_per_split) {
  if constexpr (kMayBeVectors<A, B, Out>) {
    using Tile = WarpgroupTiles<kM, kN, kN == 256 ? 16 : 32, kN == 256 ? 2 : 1>;
    auto rows = a.vectors();
    auto columns = b.vectors();
    if (rows.is_vectorized() && columns.is_vectorized() && out.result.rows().are_pairs()) {
      const BlockTile tile{kM, kN};
      const ProductExtents e{out.e.m, columns.extent, out.e.k};
      grid.x = static_cast<unsigned>(tile.blocks(e));
      return launch(product_vectors<Tile, decltype(rows), decltype(columns), Out>, grid, Tile::kThreads, 0, stream,
                    rows, columns, out, k_per_split);
    }
  }
  using Tile = WarpgroupTiles<kM, kN>;
  launch(product_warpgroups<Tile, A, B, Out>, grid, Tile::kThreads, 0, stream, a, b, out, k_per_split);
}

template <class A, class B, class Out>
void launch_warpgroups(cudaStream_t stream, dim3 grid, const BlockTile& tile, const A& a, const B& b, const Out& out,
                       int k_per_split) {
  const auto launch_tile = [&]<int kM, int kN>() {
    launch_warpgroup_tile<kM, kN>(stream, grid, a, b, out, k_per_split);
  };
  if (tile.n == 64) {
    return tile.m == 64 ? launch_tile.template operator()<64, 64>() : launch_tile.template operator()<128, 64>();
  }
  if (tile.n == 256) {
    return launch_tile.template operator()<64, 256>();
  }
  tile.m == 64 ? launch_tile.template operator()<64, 128>() : launch_tile.template operator()<128, 128>();
}

}  // namespace stagecoach::cuda
