#pragma once
/// @file
/// The fourth kernel of matrix_product.cuh: products on tensor cores in TF32, which has the range of float32 and 10
/// bits of its fraction. Sums stay float32. Needs compute capability 8.0.

#include "core/cuda/device_code.h"
#include "core/cuda/tensor_core.h"
#include "core/kernels/cuda/product_parts.cuh"

namespace stagecoach::cuda {

/// kRows x kColumns of the result a block, 64 x 32 of them a warp: as 4 x 4 pieces of 16 x 8.
template <int kRows_, int kColumns_>
struct WarpTiles {
  static constexpr int kRows = kRows_;
  static constexpr int kColumns = kColumns_;
  static constexpr int kDepth = 16;
  static constexpr int kStep = 8;  // of the depth, in one instruction
  static constexpr int kWarpRows = 64;
  static constexpr int kWarpColumns = 32;
  static constexpr int kAcross = kColumns / kWarpColumns;  // warps side by side
  static constexpr int kThreads = 32 * kAcross * (kRows / kWarpRows);
};

/// The pitches keep a warp's loads out of each other's memory banks.
template <class Tile>
struct alignas(16) TensorCoreTiles {
  float a[Tile::kDepth][Tile::kRows + 8];     // [k][m], rounded to TF32
  float b[Tile::kDepth][Tile::kColumns + 8];  // [k][n], likewise
};

struct RoundToTf32 {
  __device__ float operator()(float value) const { return __uint_as_float(round_to_tf32(value)); }
};

/// A warp's part of the product, which begins at (row, column) of the tile.
///
/// Which row of the tile is row i of a piece is free, as long as the result is stored accordingly. So rows `group` and
/// `group + 8` (as in core/cuda/tensor_core.h) are neighbours in shared memory: they come with one load, into the
/// registers where the instruction wants them.
template <class Tile>
class Pieces {
 public:
  __device__ Pieces(int row, int column) : row_(row), column_(column) {}

  /// Adds the product of the tiles.
  __device__ __forceinline__ void multiply(const TensorCoreTiles<Tile>& tiles) {
#pragma unroll
    for (int d = 0; d < Tile::kDepth; d += Tile::kStep) {
      const int depth = d + place();
      std::uint32_t a[kDown][4];
      std::uint32_t b[kAcross][2];
#pragma unroll
      for (int i = 0; i < kDown; ++i) {
        load_rows(&tiles.a[depth][row_of(i)], a[i][0], a[i][1]);
        load_rows(&tiles.a[depth + 4][row_of(i)], a[i][2], a[i][3]);
      }
#pragma unroll
      for (int j = 0; j < kAcross; ++j) {
        b[j][0] = __float_as_uint(tiles.b[depth][column_ + 8 * j + group()]);
        b[j][1] = __float_as_uint(tiles.b[depth + 4][column_ + 8 * j + group()]);
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

  /// To the tile's place in the result.
  template <class Out>
  __device__ void store(const Out& out, const Place& tile) const {
#pragma unroll
    for (int i = 0; i < kDown; ++i) {
      const int m = tile.row + row_of(i);
#pragma unroll
      for (int j = 0; j < kAcross; ++j) {
        const int n = tile.column + column_ + 8 * j + 2 * place();
        out.store(m, n, Two<float>{{sums_[i][j][0], sums_[i][j][1]}});
        out.store(m + 1, n, Two<float>{{sums_[i][j][2], sums_[i][j][3]}});
      }
    }
  }

 private:
  static constexpr int kDown = Tile::kWarpRows / 16;
  static constexpr int kAcross = Tile::kWarpColumns / 8;

  __device__ static int group() { return static_cast<int>(threadIdx.x) % 32 / 4; }
  __device__ static int place() { return static_cast<int>(threadIdx.x) % 4; }
  /// The first of this thread's two rows of piece i.
  __device__ int row_of(int i) const { return row_ + 16 * i + 2 * group(); }
  __device__ static void load_rows(const float* from, std::uint32_t& first, std::uint32_t& second) {
    const Two<float> two = *reinterpret_cast<const Two<float>*>(from);
    first = __float_as_uint(two.at[0]);
    second = __float_as_uint(two.at[1]);
  }

  int row_;
  int column_;
  float sums_[kDown][kAcross][4] = {};  // a thread's part of each piece
};

template <class Tile, class A, class B>
struct TensorCoreShared {
  TensorCoreTiles<Tile> tiles;
  typename Feed<float, Tile, A, B>::Tables tables;
};

template <class Tile, class A, class B, class Out>
__global__ void __launch_bounds__(Tile::kThreads, 2) product_tensor_cores(A a, B b, Out out, int depth_of_slice) {
  using Shared = TensorCoreShared<Tile, A, B>;
  STAGECOACH_SHARED(Shared, shared);
  const Place place(out.e, Tile::kRows, Tile::kColumns, depth_of_slice);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  Pieces<Tile> pieces(warp / Tile::kAcross * Tile::kWarpRows, warp % Tile::kAcross * Tile::kWarpColumns);
  Feed<float, Tile, A, B> feed(a, b, place, shared.tables);
  for (int k = place.begin; k < place.end; k += Tile::kDepth) {
    feed.put(a, b, shared.tables, shared.tiles, RoundToTf32{});
    __syncthreads();  // the tiles are whole
    feed.load(a, b, shared.tables);
    pieces.multiply(shared.tiles);
    __syncthreads();  // nobody needs them any more
  }
  pieces.store(out, place);
}

template <class A, class B, class Out>
void launch_tensor_cores(cudaStream_t stream, dim3 grid, const BlockTile& tile, const A& a, const B& b, const Out& out,
                         int depth_of_slice) {
  using Low = WarpTiles<64, 256>;
  using Square = WarpTiles<128, 128>;
  if (tile.rows == Low::kRows) {
    launch(product_tensor_cores<Low, A, B, Out>, grid, Low::kThreads, 0, stream, a, b, out, depth_of_slice);
  } else {
    launch(product_tensor_cores<Square, A, B, Out>, grid, Square::kThreads, 0, stream, a, b, out, depth_of_slice);
  }
}

}  // namespace stagecoach::cuda
