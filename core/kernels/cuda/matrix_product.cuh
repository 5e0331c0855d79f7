#pragma once
/// @file
/// Matrix products, in teaching order: four kernels for out[m, n] = sum over k of a(m, k) b(k, n). linear.cu and
/// conv2d.cu say where the elements lie; here is how a GPU multiplies them.
///
/// 1. plain: a thread computes one element and reads all it needs from memory. Each value of `a` and `b` is fetched
///    again by every thread that wants it: 2 reads for 2 operations.
/// 2. tiled: a block of 16 x 16 threads fetches 16 x 16 tiles of both into shared memory, where every value is used
///    16 times: one read from memory for 16 operations. Shared memory is now the limit: 2 reads for 2 operations.
/// 3. registers: a thread computes a small rectangle of the result. For 8 x 8 it reads 16 values from shared memory for
///    128 operations. The next tile is on its way from memory while the present one is multiplied.
/// 4. tensor cores (tensor_cores.cuh): a warp multiplies 16 x 8 by 8 x 16 at once, with factors rounded to 10 bits.
///
/// docs/convolution_kernel.md tells the story with the arithmetic; docs/measurements/ says what was measured, and on
/// which GPU.
///
/// An operand is a small struct with
///   kDepthInARow       true when neighbours along k are neighbours in memory: then a warp's threads load along k
///   Outer outer(int)   what a row of `a` (or a column of `b`) needs to know, worked out once a tile
///   Depth depth(int)   likewise for one k
///   T load(const Outer&, const Depth&)   the element; 0 outside the matrix
/// and a result is one with store(m, n, value).

#include "core/cuda/device_code.h"
#include "core/kernels/cuda/product_parts.cuh"
#include "core/kernels/cuda/tensor_cores.cuh"

namespace stagecoach::cuda {

// ---- 1. plain

template <class T, class A, class B, class Result>
__global__ void product_plain(A a, B b, Result result, ProductExtents e, int depth_of_slice) {
  const Place place(e, 1, static_cast<int>(blockDim.x), depth_of_slice);
  const int m = place.row;
  const int n = place.column + static_cast<int>(threadIdx.x);
  if (n >= e.columns) {
    return;
  }
  const auto row = a.outer(m);
  const auto column = b.outer(n);
  T sum = 0;
  for (int k = place.begin; k < place.end; ++k) {
    sum += a.load(row, a.depth(k)) * b.load(column, b.depth(k));
  }
  result.store(m, n, static_cast<int>(blockIdx.y), sum);
}

// ---- 2. tiled in shared memory

template <class T>
struct SmallTiles {
  T a[kTile][kTile + 1];  // [k][m]; the extra column keeps threads out of each other's memory bank
  T b[kTile][kTile + 1];  // [k][n]
};

template <class T, class A, class B, class Result>
__global__ void __launch_bounds__(kTile* kTile)
    product_tiled(A a, B b, Result result, ProductExtents e, int depth_of_slice) {
  STAGECOACH_SHARED(SmallTiles<T>, tiles);
  const Place place(e, kTile, kTile, depth_of_slice);
  const int x = static_cast<int>(threadIdx.x) % kTile;
  const int y = static_cast<int>(threadIdx.x) / kTile;
  // The thread that fetches an element need not be the one that uses it: neighbours fetch neighbours.
  const int a_outer = A::kDepthInARow ? y : x;
  const int a_depth = A::kDepthInARow ? x : y;
  const int b_outer = B::kDepthInARow ? y : x;
  const int b_depth = B::kDepthInARow ? x : y;
  const auto row = a.outer(place.row + a_outer);
  const auto column = b.outer(place.column + b_outer);
  T sum = 0;
  for (int k = place.begin; k < place.end; k += kTile) {
    tiles.a[a_depth][a_outer] = k + a_depth < place.end ? a.load(row, a.depth(k + a_depth)) : T(0);
    tiles.b[b_depth][b_outer] = k + b_depth < place.end ? b.load(column, b.depth(k + b_depth)) : T(0);
    __syncthreads();  // the tiles are whole
    for (int d = 0; d < kTile; ++d) {
      sum += tiles.a[d][y] * tiles.b[d][x];
    }
    __syncthreads();  // nobody needs them any more
  }
  if (place.row + y < e.rows && place.column + x < e.columns) {
    result.store(place.row + y, place.column + x, static_cast<int>(blockIdx.y), sum);
  }
}

// ---- 3. tiled in shared memory and in registers

/// kRows x kColumns of the result a block, kThreadRows x kThreadColumns of them a thread, kDepth deep at a time.
template <int kRows_, int kColumns_, int kDepth_, int kThreadRows_, int kThreadColumns_>
struct RegisterTile {
  static constexpr int kRows = kRows_;
  static constexpr int kColumns = kColumns_;
  static constexpr int kDepth = kDepth_;
  static constexpr int kThreadRows = kThreadRows_;
  static constexpr int kThreadColumns = kThreadColumns_;
  static constexpr int kAcross = kColumns / kThreadColumns;  // threads side by side
  static constexpr int kThreads = kAcross * (kRows / kThreadRows);
};

template <class T, class Tile>
struct alignas(16) Tiles {                // so that four values can be read at once
  T a[Tile::kDepth][Tile::kRows + 4];     // [k][m]; + 4: rows still begin at a whole vector of four
  T b[Tile::kDepth][Tile::kColumns + 4];  // [k][n]
};

/// sums += the product of the tiles, for this thread's rectangle.
template <class T, class Tile>
__device__ __forceinline__ void multiply_tiles(const Tiles<T, Tile>& tiles, int x, int y,
                                               T (&sums)[Tile::kThreadRows][Tile::kThreadColumns]) {
#pragma unroll
  for (int d = 0; d < Tile::kDepth; ++d) {
    T row[Tile::kThreadRows];
    T column[Tile::kThreadColumns];
#pragma unroll
    for (int i = 0; i < Tile::kThreadRows; ++i) {
      row[i] = tiles.a[d][y * Tile::kThreadRows + i];
    }
#pragma unroll
    for (int j = 0; j < Tile::kThreadColumns; ++j) {
      column[j] = tiles.b[d][x + j * Tile::kAcross];  // neighbouring threads, neighbouring banks
    }
#pragma unroll
    for (int i = 0; i < Tile::kThreadRows; ++i) {
#pragma unroll
      for (int j = 0; j < Tile::kThreadColumns; ++j) {
        sums[i][j] += row[i] * column[j];
      }
    }
  }
}

template <class T, class Tile, class A, class B, class Result>
__global__ void __launch_bounds__(Tile::kThreads)
    product_registers(A a, B b, Result result, ProductExtents e, int depth_of_slice) {
  using Shared = Tiles<T, Tile>;
  STAGECOACH_SHARED(Shared, tiles);
  const Place place(e, Tile::kRows, Tile::kColumns, depth_of_slice);
  const int x = static_cast<int>(threadIdx.x) % Tile::kAcross;
  const int y = static_cast<int>(threadIdx.x) / Tile::kAcross;
  Fetch<T, Tile::kRows, Tile::kDepth, Tile::kThreads, A> fetch_a(a, place.row);
  Fetch<T, Tile::kColumns, Tile::kDepth, Tile::kThreads, B> fetch_b(b, place.column);
  T sums[Tile::kThreadRows][Tile::kThreadColumns] = {};
  fetch_a.load(a, place.begin, place.end);
  fetch_b.load(b, place.begin, place.end);
  for (int k = place.begin; k < place.end; k += Tile::kDepth) {
    fetch_a.put(tiles.a);
    fetch_b.put(tiles.b);
    __syncthreads();  // the tiles are whole
    fetch_a.load(a, k + Tile::kDepth, place.end);
    fetch_b.load(b, k + Tile::kDepth, place.end);
    multiply_tiles<T, Tile>(tiles, x, y, sums);
    __syncthreads();  // nobody needs them any more
  }
#pragma unroll
  for (int i = 0; i < Tile::kThreadRows; ++i) {
    const int m = place.row + y * Tile::kThreadRows + i;
#pragma unroll
    for (int j = 0; j < Tile::kThreadColumns; ++j) {
      const int n = place.column + x + j * Tile::kAcross;
      if (m < e.rows && n < e.columns) {
        result.store(m, n, static_cast<int>(blockIdx.y), sums[i][j]);
      }
    }
  }
}

// ---- Slices of the depth

/// The results of the slices, one behind the other.
template <class T>
struct PartialResult {
  T* data;  // [slices, rows, columns]
  int rows;
  int columns;
  __device__ void store(int m, int n, int slice, T value) const {
    data[(static_cast<long long>(slice) * rows + m) * columns + n] = value;
  }
};

/// Adds the slices in their order, so the sum does not depend on which was done first.
template <class T, class Result>
__global__ void add_slices(const T* partial, int slices, Result result, ProductExtents e) {
  const int at = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (at >= e.rows * e.columns) {
    return;
  }
  T sum = 0;
  for (int slice = 0; slice < slices; ++slice) {
    sum += partial[static_cast<long long>(slice) * e.rows * e.columns + at];
  }
  result.store(at / e.columns, at % e.columns, 0, sum);
}

// ---- Which kernel

template <class T, class Tile, class A, class B, class Result>
void launch_registers(cudaStream_t stream, dim3 grid, const A& a, const B& b, const Result& result,
                      const ProductExtents& e, int depth_of_slice) {
  launch(product_registers<T, Tile, A, B, Result>, grid, Tile::kThreads, 0, stream, a, b, result, e, depth_of_slice);
}

template <class T, class A, class B, class Result>
void launch_product(cudaStream_t stream, const ProductPlan& plan, const A& a, const B& b, const Result& result,
                    const ProductExtents& e) {
  // For float64, which is there for tests, the tiled kernel stands for the faster ones.
  const ProductKernel kernel = sizeof(T) == sizeof(float) ? plan.kernel : std::min(plan.kernel, ProductKernel::tiled);
  const BlockTile tile = block_tile(kernel, e);
  constexpr int kUnit = 32;  // slices begin where every kernel's tiles do
  const int depth_of_slice = ((e.depth + plan.slices - 1) / plan.slices + kUnit - 1) / kUnit * kUnit;
  const dim3 grid(static_cast<unsigned>(tile.blocks(e)), static_cast<unsigned>(plan.slices));
  if (kernel == ProductKernel::plain) {
    return launch(product_plain<T, A, B, Result>, grid, static_cast<unsigned>(tile.columns), 0, stream, a, b, result, e,
                  depth_of_slice);
  }
  if constexpr (sizeof(T) == sizeof(float)) {
    if (kernel == ProductKernel::tensor_cores) {
      return launch_tensor_cores(stream, grid, a, b, result, e, depth_of_slice);
    }
    if (kernel == ProductKernel::registers) {
      switch (tile.rows) {
        case 8:
          return launch_registers<T, RegisterTile<8, 128, 16, 8, 1>>(stream, grid, a, b, result, e, depth_of_slice);
        case 16:
          return launch_registers<T, RegisterTile<16, 128, 16, 8, 2>>(stream, grid, a, b, result, e, depth_of_slice);
        case 32:
          return launch_registers<T, RegisterTile<32, 32, 32, 2, 2>>(stream, grid, a, b, result, e, depth_of_slice);
        case 64:
          return launch_registers<T, RegisterTile<64, 64, 16, 4, 4>>(stream, grid, a, b, result, e, depth_of_slice);
        default:
          return launch_registers<T, RegisterTile<128, 128, 8, 8, 8>>(stream, grid, a, b, result, e, depth_of_slice);
      }
    }
  }
  launch(product_tiled<T, A, B, Result>, grid, kTile * kTile, 0, stream, a, b, result, e, depth_of_slice);
}

/// The whole product, by the plan. `partial` has plan.partial_elements(e) elements.
template <class T, class A, class B, class Result>
void multiply(cudaStream_t stream, const ProductPlan& plan, const A& a, const B& b, const Result& result,
              const ProductExtents& e, T* partial) {
  if (e.rows == 0 || e.columns == 0) {
    return;
  }
  if (plan.slices == 1) {
    return launch_product<T>(stream, plan, a, b, result, e);
  }
  launch_product<T>(stream, plan, a, b, PartialResult<T>{partial, e.rows, e.columns}, e);
  constexpr int kThreads = 128;
  const int blocks = (e.rows * e.columns + kThreads - 1) / kThreads;
  launch(add_slices<T, Result>, static_cast<unsigned>(blocks), kThreads, 0, stream, partial, plan.slices, result, e);
}

// ---- Operands and results that lie in memory as matrices

/// Element (outer, k) at data[outer * outer_step + k * depth_step].
template <class T, bool kDepthInARow_>
struct MatrixOperand {
  static constexpr bool kDepthInARow = kDepthInARow_;
  using Outer = int;  // where it begins; negative outside the matrix
  using Depth = int;
  const T* data;
  int extent;  // of the outer direction
  int outer_step;
  int depth_step;
  __device__ Outer outer(int index) const { return index < extent ? index * outer_step : -1; }
  __device__ Depth depth(int k) const { return k * depth_step; }
  __device__ T load(Outer start, Depth step) const { return start >= 0 ? data[start + step] : T(0); }
};

/// out [rows, columns] = the product + bias [columns] (or null).
template <class T>
struct MatrixResult {
  T* data;
  int columns;
  const T* bias;
  __device__ void store(int m, int n, int, T value) const {
    data[static_cast<long long>(m) * columns + n] = bias == nullptr ? value : value + bias[n];
  }
};

}  // namespace stagecoach::cuda
