#pragma once
/// @file
/// Matrix products, in teaching order: four kernels for out[m, n] = sum over k of a(m, k) b(k, n). linear.cu and
/// conv2d.cu say where the elements lie; here is how a GPU multiplies them.
///
/// 1. plain: a thread computes one element and reads all it needs from memory. Each value of `a` and `b` is fetched
///    again by every thread that wants it: 2 reads for 2 operations.
/// 2. tiled: a block of 16 x 16 threads fetches 16 x 16 tiles of both into shared memory, where every value is used
///    16 times: one read from memory for 16 operations. Shared memory is now the limit: 2 reads for 2 operations.
/// 3. registers: a thread computes a small rectangle of the result. For 4 x 4 it reads 8 values from shared memory for
/// 32
///    operations. The next tile is on its way from memory while the present one is multiplied.
/// 4. tensor cores (tensor_cores.cuh): a warp multiplies 16 x 8 by 8 x 8 at once, with factors rounded to 10 bits.
///
/// docs/convolution_kernel.md tells the story with the arithmetic; docs/measurements/ says what was measured, and on
/// which GPU.
///
/// An operand is a small struct with
///   kDepthInARow       true when neighbours along k are neighbours in memory: then a warp's threads load along k
///   Outer outer(int)   what a row of `a` (or a column of `b`) needs to know; it may lie outside the matrix
///   Depth depth(int k, int end)   likewise for one k; k >= end lies outside
///   T load(const Outer&, const Depth&)   the element; 0 when one of them lies outside, or in `b` any number, as long
///   as
///                                        `a` is 0 at that depth
/// and a result is one with
///   store(m, n, value)
///   in_twos()          whether an even column and the next are neighbours in memory
///   store(m, n, Two)   both at once, where in_twos() says so

#include <algorithm>
#include <bit>

#include "core/cuda/device_code.h"
#include "core/kernels/cuda/arguments.h"
#include "core/kernels/cuda/divisor.cuh"
#include "core/kernels/cuda/product_parts.cuh"
#include "core/kernels/cuda/tensor_cores.cuh"

namespace stagecoach::cuda {

// ---- 1. plain

template <class T, class A, class B, class Out>
__global__ void product_plain(A a, B b, Out out, int depth_of_slice) {
  const Place place(out.e, 1, static_cast<int>(blockDim.x), depth_of_slice);
  const int m = place.row;
  const int n = place.column + static_cast<int>(threadIdx.x);
  const auto row = a.outer(m);
  const auto column = b.outer(n);
  T sum = 0;
  for (int k = place.begin; k < place.end; ++k) {
    sum += a.load(row, a.depth(k, place.end)) * b.load(column, b.depth(k, place.end));
  }
  out.store(m, n, sum);
}

// ---- 2. tiled in shared memory

template <class T>
struct SmallTiles {
  T a[kTile][kTile + 1];  // [k][m]; the extra column keeps threads out of each other's memory bank
  T b[kTile][kTile + 1];  // [k][n]
};

template <class T, class A, class B, class Out>
__global__ void __launch_bounds__(kTile* kTile) product_tiled(A a, B b, Out out, int depth_of_slice) {
  STAGECOACH_SHARED(SmallTiles<T>, tiles);
  const Place place(out.e, kTile, kTile, depth_of_slice);
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
    tiles.a[a_depth][a_outer] = a.load(row, a.depth(k + a_depth, place.end));
    tiles.b[b_depth][b_outer] = b.load(column, b.depth(k + b_depth, place.end));
    __syncthreads();  // the tiles are whole
    for (int d = 0; d < kTile; ++d) {
      sum += tiles.a[d][y] * tiles.b[d][x];
    }
    __syncthreads();  // nobody needs them any more
  }
  out.store(place.row + y, place.column + x, sum);
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

template <class T, class Tile, class A, class B>
struct RegisterShared {
  Tiles<T, Tile> tiles;
  typename Feed<T, Tile, A, B>::Tables tables;
};

template <class T, class Tile, class A, class B, class Out>
__global__ void __launch_bounds__(Tile::kThreads) product_registers(A a, B b, Out out, int depth_of_slice) {
  using Shared = RegisterShared<T, Tile, A, B>;
  STAGECOACH_SHARED(Shared, shared);
  const Place place(out.e, Tile::kRows, Tile::kColumns, depth_of_slice);
  const int x = static_cast<int>(threadIdx.x) % Tile::kAcross;
  const int y = static_cast<int>(threadIdx.x) / Tile::kAcross;
  Feed<T, Tile, A, B> feed(a, b, place, shared.tables);
  T sums[Tile::kThreadRows][Tile::kThreadColumns] = {};
  for (int k = place.begin; k < place.end; k += Tile::kDepth) {
    feed.put(a, b, shared.tables, shared.tiles);
    __syncthreads();  // the tiles are whole
    feed.load(a, b, shared.tables);
    multiply_tiles<T, Tile>(shared.tiles, x, y, sums);
    __syncthreads();  // nobody needs them any more
  }
#pragma unroll
  for (int i = 0; i < Tile::kThreadRows; ++i) {
#pragma unroll
    for (int j = 0; j < Tile::kThreadColumns; ++j) {
      out.store(place.row + y * Tile::kThreadRows + i, place.column + x + j * Tile::kAcross, sums[i][j]);
    }
  }
}

// ---- Slices of the depth

inline constexpr int kSumColumns = 32;  ///< neighbours in memory, which a warp reads together
inline constexpr int kSumRows = 16;     ///< warps of a block that adds slices

template <class T>
struct PartsOfSums {
  T at[kSumRows][kSumColumns];
};

/// Adds the slices, in an order that follows from their number alone. `share` threads (a power of two up to kSumRows)
/// share an element: the first takes slices 0, share, 2 share and so on, the next those behind them; then the first
/// adds what they found. One thread alone would wait for each slice's value in turn.
template <class T, class Result>
__global__ void __launch_bounds__(kSumColumns* kSumRows)
    add_slices(const T* partial, int slices, int share, Result result, ProductExtents e) {
  STAGECOACH_SHARED(PartsOfSums<T>, parts);
  const int x = static_cast<int>(threadIdx.x) % kSumColumns;
  const int y = static_cast<int>(threadIdx.x) / kSumColumns;
  const int first = y % share;
  const int at = (static_cast<int>(blockIdx.x) * (kSumRows / share) + y / share) * kSumColumns + x;
  const bool inside = at < e.rows * e.columns;
  T sum = 0;
#pragma unroll 8
  for (int slice = first; slice < slices; slice += share) {
    sum += load_if(inside, partial + static_cast<long long>(slice) * e.rows * e.columns + at);
  }
  parts.at[y][x] = sum;
  __syncthreads();  // all parts are there
  if (first == 0 && inside) {
    for (int other = 1; other < share; ++other) {
      sum += parts.at[y + other][x];
    }
    result.store(at / e.columns, at % e.columns, sum);
  }
}

// ---- Which kernel

template <class T, class Tile, class A, class B, class Out>
void launch_registers(cudaStream_t stream, dim3 grid, const A& a, const B& b, const Out& out, int depth_of_slice) {
  launch(product_registers<T, Tile, A, B, Out>, grid, Tile::kThreads, 0, stream, a, b, out, depth_of_slice);
}

template <class T, class A, class B, class Out>
void launch_product(cudaStream_t stream, const ProductPlan& plan, const A& a, const B& b, const Out& out) {
  // For float64, which is there for tests, the tiled kernel stands for the faster ones.
  constexpr bool kAll = sizeof(T) == sizeof(float);
  const ProductKernel kernel = kAll ? plan.kernel : std::min(plan.kernel, ProductKernel::tiled);
  const BlockTile tile = kernel == plan.kernel ? plan.tile : block_tile(kernel, out.e);
  const int depth = plan.depth_of_slice;
  const dim3 grid(static_cast<unsigned>(tile.blocks(out.e)), static_cast<unsigned>(plan.slices));
  if (kernel == ProductKernel::plain) {
    return launch(product_plain<T, A, B, Out>, grid, static_cast<unsigned>(tile.columns), 0, stream, a, b, out, depth);
  }
  if constexpr (kAll) {
    if (kernel == ProductKernel::tensor_cores) {
      return launch_tensor_cores(stream, grid, tile, a, b, out, depth);
    }
    if (kernel == ProductKernel::registers) {
      if (tile.rows == 16) {
        return launch_registers<T, RegisterTile<16, 128, 16, 8, 2>>(stream, grid, a, b, out, depth);
      }
      return launch_registers<T, RegisterTile<64, 64, 16, 4, 4>>(stream, grid, a, b, out, depth);
    }
  }
  launch(product_tiled<T, A, B, Out>, grid, kTile * kTile, 0, stream, a, b, out, depth);
}

/// The whole product, by the plan.
template <class T, class A, class B, class Result>
void multiply(Device device, const ProductPlan& plan, const A& a, const B& b, const Result& result,
              const ProductExtents& e) {
  const int elements = to_int(std::int64_t{1} * e.rows * e.columns);
  if (elements == 0) {
    return;
  }
  Workspace<T> partial(plan.partial_elements(e), device);  // nothing for one slice
  const cudaStream_t stream = compute_stream(device);
  launch_product<T>(stream, plan, a, b, Output<T, Result>{result, partial.data(), e});
  if (plan.slices > 1) {
    const int share = std::min<int>(std::bit_floor(static_cast<unsigned>(std::max(plan.slices / 4, 1))), kSumRows);
    const int elements_of_block = kSumColumns * kSumRows / share;
    const int blocks = (elements + elements_of_block - 1) / elements_of_block;
    launch(add_slices<T, Result>, static_cast<unsigned>(blocks), kSumColumns * kSumRows, 0, stream, partial.data(),
           plan.slices, share, result, e);
  }
}

// ---- Operands and results that lie in memory as matrices

/// Added to any place in memory (they are below kMostElements), or to itself, it is negative.
inline constexpr int kOutside = -(1 << 30);

/// The element at `place`, or `outside` when the place is negative.
template <class T>
__device__ T load_at(const T* data, int place, T outside = 0) {
  return load_if(place >= 0, data + place, outside);
}

/// Element (outer, k) at data[outer * outer_step + k * depth_step].
template <class T, bool kDepthInARow_>
struct MatrixOperand {
  static constexpr bool kDepthInARow = kDepthInARow_;
  using Outer = int;  // where it begins
  using Depth = int;
  const T* data;
  int extent;  // of the outer direction
  int outer_step;
  int depth_step;
  __device__ Outer outer(int index) const { return index < extent ? index * outer_step : kOutside; }
  __device__ Depth depth(int k, int end) const { return k < end ? k * depth_step : kOutside; }
  __device__ T load(Outer start, Depth step) const { return load_at(data, start + step); }
};

/// data [N, M, S] seen from the second direction, along the first and the third.
template <class T>
struct PlanesOperand {
  static constexpr bool kDepthInARow = true;
  using Outer = int;  // where it begins
  using Depth = int;
  const T* data;
  int extent;     // M
  Divisor plane;  // S
  __device__ Outer outer(int m) const { return m < extent ? m * plane.value() : kOutside; }
  __device__ Depth depth(int k, int end) const {
    const int n = plane.quotient(k);
    return k < end ? n * extent * plane.value() + plane.remainder(k, n) : kOutside;
  }
  __device__ T load(Outer start, Depth step) const { return load_at(data, start + step); }
};

/// out [rows, columns] = the product + bias [columns] (or null).
template <class T>
struct MatrixResult {
  T* data;
  int columns;
  const T* bias;
  __device__ bool in_twos() const { return columns % 2 == 0 && is_aligned<2>(data); }
  __device__ void store(int m, int n, T value) const { at(m, n) = bias == nullptr ? value : value + bias[n]; }
  __device__ void store(int m, int n, Two<T> values) const {
    if (bias != nullptr) {
      for (int j = 0; j < 2; ++j) {
        values.at[j] += bias[n + j];
      }
    }
    reinterpret_cast<Two<T>&>(at(m, n)) = values;
  }

 private:
  __device__ T& at(int m, int n) const { return data[static_cast<long long>(m) * columns + n]; }
};

/// weight [rows, columns], and bias [rows] as one more column of the product. Either may be null: it is not wanted.
template <class T>
struct WeightResult {
  T* weight;
  T* bias;
  int columns;
  __device__ static bool in_twos() { return false; }
  __device__ void store(int m, int n, T value) const {
    if (n < columns && weight != nullptr) {
      weight[static_cast<long long>(m) * columns + n] = value;
    } else if (n == columns && bias != nullptr) {
      bias[m] = value;
    }
  }
  __device__ void store(int, int, const Two<T>&) const {}
};

}  // namespace stagecoach::cuda
