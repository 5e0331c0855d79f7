#pragma once
/// @file
/// The fourth kernel of matrix_product.cuh: products on tensor cores in TF32, which has the range of float32 and 10
/// bits of its fraction. Sums remain float32. Requires compute capability 8.0.

#include "core/cuda/device_code.h"
#include "core/cuda/tensor_core.h"
#include "core/kernels/cuda/tile_loader.cuh"

namespace stagecoach::cuda {

/// kM x kN of the result per block, 64 x 32 of them per warp: 4 x 4 fragments of 16 x 8.
template <int kM_, int kN_>
struct WarpTiles {
  static constexpr int kM = kM_;
  static constexpr int kN = kN_;
  static constexpr int kK = 16;
  static constexpr int kStep = 8;  // along K, in one instruction
  static constexpr int kWarpM = 64;
  static constexpr int kWarpN = 32;
  static constexpr int kAcross = kN / kWarpN;  // warps along N
  static constexpr int kThreads = 32 * kAcross * (kM / kWarpM);
};

/// The pitches avoid bank conflicts between the loads of a warp.
template <class Tile>
struct alignas(16) TensorCoreTiles {
  float a[Tile::kK][Tile::kM + 8];  // [k][m], rounded to TF32
  float b[Tile::kK][Tile::kN + 8];  // [k][n], rounded to TF32
};

struct RoundToTf32 {
  __device__ float operator()(float value) const { return __uint_as_float(round_to_tf32(value)); }
};

/// A warp's part of the product, which begins at (row, column) of the tile.
///
/// Any row of the tile may be row i of a fragment, as long as the result is stored accordingly. So rows `group` and
/// `group + 8` (as in core/cuda/tensor_core.h) are adjacent in shared memory: one load brings both into the registers
/// that the instruction uses.
template <class Tile>
class Fragments {
 public:
  __device__ Fragments(int row, int column) : row_(row), column_(column) {}

  /// Adds the product of the tiles.
  __device__ __forceinline__ void multiply(const TensorCoreTiles<Tile>& tiles) {
#pragma unroll
    for (int d = 0; d < Tile::kK; d += Tile::kStep) {
      const int k = d + place();
      std::uint32_t a[kDown][4];
      std::uint32_t b[kAcross][2];
#pragma unroll
      for (int i = 0; i < kDown; ++i) {
        load_rows(&tiles.a[k][row_of(i)], a[i][0], a[i][1]);
        load_rows(&tiles.a[k + 4][row_of(i)], a[i][2], a[i][3]);
      }
#pragma unroll
      for (int j = 0; j < kAcross; ++j) {
        b[j][0] = __float_as_uint(tiles.b[k][column_ + 8 * j + group()]);
        b[j][1] = __float_as_uint(tiles.b[k + 4][column_ + 8 * j + group()]);
      }
#pragma unroll
      for (int i = 0; i < kDown; ++i) {
#pragma unroll
        for (int j = 0; j < kAcross; ++j) {
          multiply_tf32(sums_[i][j], a[i], b[j]);
        }
      }
    }
  }

  /// Stores the sums at the tile's position in the result.
  template <class Out>
  __device__ void store(const Out& out, const BlockRange& tile) const {
#pragma unroll
    for (int i = 0; i < kDown; ++i) {
      const int m = tile.m + row_of(i);
#pragma unroll
      for (int j = 0; j < kAcross; ++j) {
        const int n = tile.n + column_ + 8 * j + 2 * place();
        out.store(m, n, Vector2<float>{{sums_[i][j][0], sums_[i][j][1]}});
        out.store(m + 1, n, Vector2<float>{{sums_[i][j][2], sums_[i][j][3]}});
      }
    }
  }

 private:
  static constexpr int kDown = Tile::kWarpM / 16;
  static constexpr int kAcross = Tile::kWarpN / 8;

  __device__ static int group() { return static_cast<int>(threadIdx.x) % 32 / 4; }
  __device__ static int place() { return static_cast<int>(threadIdx.x) % 4; }
  /// Returns the first of this thread's two rows of fragment i.
  __device__ int row_of(int i) const { return row_ + 16 * i + 2 * group(); }
  __device__ static void load_rows(const float* from, std::uint32_t& first, std::uint32_t& second) {
    const Vector2<float> two = *reinterpret_cast<const Vector2<float>*>(from);
    first = __float_as_uint(two.at[0]);
    second = __float_as_uint(two.at[1]);
  }

  int row_;
  int column_;
  float sums_[kDown][kAcross][4] = {};  // a thread's part of each fragment
};

template <class Tile, class A, class B>
struct TensorCoreShared {
  TensorCoreTiles<Tile> tiles;
  typename DoubleBuffer<float, Tile, A, B>::Tables tables;
};

template <class Tile, class A, class B, class Out>
__global__ void __launch_bounds__(Tile::kThreads, 2) product_tensor_cores(A a, B b, Out out, int k_per_split) {
  using Shared = TensorCoreShared<Tile, A, B>;
  STAGECOACH_SHARED(Shared, shared);
  const BlockRange range(out.e, Tile::kM, Tile::kN, k_per_split);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  Fragments<Tile> fragments(warp / Tile::kAcross * Tile::kWarpM, warp % Tile::kAcross * Tile::kWarpN);
  DoubleBuffer<float, Tile, A, B> buffer(a, b, range, shared.tables);
  for (int k = range.k_begin; k < range.k_end; k += Tile::kK) {
    buffer.put(a, b, shared.tables, shared.tiles, RoundToTf32{});
    __syncthreads();  // the tiles are complete
    buffer.load(a, b, shared.tables);
    fragments.multiply(shared.tiles);
    __syncthreads();  // all threads have read them
  }
  fragments.store(out, range);
}

template <class A, class B, class Out>
void launch_tensor_cores(cudaStream_t stream, dim3 grid, const BlockTile& tile, const A& a, const B& b, const Out& out,
                         int k_per_split) {
  using Low = WarpTiles<64, 256>;
  using Square = WarpTiles<128, 128>;
  if (tile.m == Low::kM) {
    launch(product_tensor_cores<Low, A, B, Out>, grid, Low::kThreads, 0, stream, a, b, out, k_per_split);
  } else {
    launch(product_tensor_cores<Square, A, B, Out>, grid, Square::kThreads, 0, stream, a, b, out, k_per_split);
  }
}

}  // namespace stagecoach::cuda
