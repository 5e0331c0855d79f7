#pragma once
/// @file
/// Matrix products, in teaching order: five kernels for out[m, n] = sum over k of a(m, k) b(k, n). linear.cu and
/// conv2d.cu define where the elements are; this file shows how a GPU multiplies them.
///
/// 1. plain: a thread computes one element and reads all it needs from memory. Each value of `a` and `b` is loaded
///    again by every thread that uses it: 2 loads per 2 operations.
/// 2. tiled: a block of 16 x 16 threads loads 16 x 16 tiles of both into shared memory, where every value is used 16
///    times: one load from memory per 16 operations. Shared memory is now the limit: 2 loads per 2 operations.
/// 3. registers: a thread computes a small rectangle of the result. For 4 x 4 it loads 8 values from shared memory per
///    32 operations. The next tile is loaded while the current one is multiplied (double buffering).
/// 4. tensor cores (tensor_cores.cuh): a warp multiplies 16 x 8 by 8 x 8 at once, with factors rounded to 10 bits.
/// 5. warpgroups (warpgroups.cuh): four warps multiply 64 x 8 by 8 x 128, which tensor cores read from shared memory.
///
/// docs/convolution_kernel.md explains them with the arithmetic; docs/measurements/ has the measurements, and names the
/// GPU.
///
/// An operand is a small struct with
///   kContiguousK                  whether elements adjacent along K are adjacent in memory: then threads load along K
///   Mn mn(int index)              the values computed once per row of `a` (or column of `b`), which may be outside
///   K k(int index, int end)       likewise for a K index, which is outside from `end` on
///   T load(const Mn&, const K&)   the element; 0 if one is outside (in `b` any finite number: `a` is 0 there)
/// and a result is one with
///   store(m, n, value)
///   takes_pairs()                 whether an even column and the next one are adjacent in memory
///   store(m, n, Vector2)          both at once, where takes_pairs() is true

#include <algorithm>
#include <bit>

#include "core/cuda/device_code.h"
#include "core/kernels/cuda/arguments.h"
#include "core/kernels/cuda/fast_divmod.cuh"
#include "core/kernels/cuda/tensor_cores.cuh"
#include "core/kernels/cuda/tile_loader.cuh"
#include "core/kernels/cuda/warpgroups.cuh"

namespace stagecoach::cuda {

// ---- 1. plain

template <class T, class A, class B, class Out>
__global__ void product_plain(A a, B b, Out out, int k_per_split) {
  const BlockRange range(out.e, 1, static_cast<int>(blockDim.x), k_per_split);
  const int m = range.m;
  const int n = range.n + static_cast<int>(threadIdx.x);
  const auto row = a.mn(m);
  const auto column = b.mn(n);
  T sum = 0;
  for (int k = range.k_begin; k < range.k_end; ++k) {
    sum += a.load(row, a.k(k, range.k_end)) * b.load(column, b.k(k, range.k_end));
  }
  out.store(m, n, sum);
}

// ---- 2. tiled in shared memory

template <class T>
struct SmallTiles {
  T a[kTile][kTile + 1];  // [k][m]; the extra column avoids bank conflicts
  T b[kTile][kTile + 1];  // [k][n]
};

template <class T, class A, class B, class Out>
__device__ void multiply_in_shared(SmallTiles<T>& tiles, const BlockRange& range, const A& a, const B& b,
                                   const Out& out) {
  const int x = static_cast<int>(threadIdx.x) % kTile;
  const int y = static_cast<int>(threadIdx.x) / kTile;
  // A thread need not load the elements that it uses: adjacent threads load adjacent elements.
  const int a_m = A::kContiguousK ? y : x;
  const int a_k = A::kContiguousK ? x : y;
  const int b_n = B::kContiguousK ? y : x;
  const int b_k = B::kContiguousK ? x : y;
  const auto row = a.mn(range.m + a_m);
  const auto column = b.mn(range.n + b_n);
  T sum = 0;
  for (int k = range.k_begin; k < range.k_end; k += kTile) {
    tiles.a[a_k][a_m] = a.load(row, a.k(k + a_k, range.k_end));
    tiles.b[b_k][b_n] = b.load(column, b.k(k + b_k, range.k_end));
    __syncthreads();  // the tiles are complete
    for (int d = 0; d < kTile; ++d) {
      sum += tiles.a[d][y] * tiles.b[d][x];
    }
    __syncthreads();  // all threads have read them
  }
  out.store(range.m + y, range.n + x, sum);
}

template <class T, class A, class B, class Out>
__global__ void __launch_bounds__(kTile* kTile) product_tiled(A a, B b, Out out, int k_per_split) {
  STAGECOACH_SHARED(SmallTiles<T>, tiles);
  multiply_in_shared(tiles, BlockRange(out.e, kTile, kTile, k_per_split), a, b, out);
}

// ---- 3. tiled in shared memory and in registers

/// kM x kN of the result per block, kThreadM x kThreadN of them per thread, in steps of kK along K.
template <int kM_, int kN_, int kK_, int kThreadM_, int kThreadN_>
struct RegisterTile {
  static constexpr int kM = kM_;
  static constexpr int kN = kN_;
  static constexpr int kK = kK_;
  static constexpr int kThreadM = kThreadM_;
  static constexpr int kThreadN = kThreadN_;
  static constexpr int kAcross = kN / kThreadN;  // threads along N
  static constexpr int kThreads = kAcross * (kM / kThreadM);
};

template <class T, class Tile>
struct alignas(16) Tiles {      // so that four values can be read at once
  T a[Tile::kK][Tile::kM + 4];  // [k][m]; + 4: rows stay aligned to vectors of four
  T b[Tile::kK][Tile::kN + 4];  // [k][n]
};

/// sums += the product of the tiles, for this thread's rectangle.
template <class T, class Tile>
__device__ __forceinline__ void multiply_tiles(const Tiles<T, Tile>& tiles, int x, int y,
                                               T (&sums)[Tile::kThreadM][Tile::kThreadN]) {
#pragma unroll
  for (int d = 0; d < Tile::kK; ++d) {
    T row[Tile::kThreadM];
    T column[Tile::kThreadN];
#pragma unroll
    for (int i = 0; i < Tile::kThreadM; ++i) {
      row[i] = tiles.a[d][y * Tile::kThreadM + i];
    }
#pragma unroll
    for (int j = 0; j < Tile::kThreadN; ++j) {
      column[j] = tiles.b[d][x + j * Tile::kAcross];  // adjacent threads use adjacent banks
    }
#pragma unroll
    for (int i = 0; i < Tile::kThreadM; ++i) {
#pragma unroll
      for (int j = 0; j < Tile::kThreadN; ++j) {
        sums[i][j] += row[i] * column[j];
      }
    }
  }
}

template <class T, class Tile, class A, class B>
struct RegisterShared {
  Tiles<T, Tile> tiles;
  typename DoubleBuffer<T, Tile, A, B>::Tables tables;
};

template <class T, class Tile, class A, class B, class Out>
__global__ void __launch_bounds__(Tile::kThreads) product_registers(A a, B b, Out out, int k_per_split) {
  using Shared = RegisterShared<T, Tile, A, B>;
  STAGECOACH_SHARED(Shared, shared);
  const BlockRange range(out.e, Tile::kM, Tile::kN, k_per_split);
  const int x = static_cast<int>(threadIdx.x) % Tile::kAcross;
  const int y = static_cast<int>(threadIdx.x) / Tile::kAcross;
  DoubleBuffer<T, Tile, A, B> buffer(a, b, range, shared.tables);
  T sums[Tile::kThreadM][Tile::kThreadN] = {};
  for (int k = range.k_begin; k < range.k_end; k += Tile::kK) {
    buffer.put(a, b, shared.tables, shared.tiles);
    __syncthreads();  // the tiles are complete
    buffer.load(a, b, shared.tables);
    multiply_tiles<T, Tile>(shared.tiles, x, y, sums);
    __syncthreads();  // all threads have read them
  }
#pragma unroll
  for (int i = 0; i < Tile::kThreadM; ++i) {
#pragma unroll
    for (int j = 0; j < Tile::kThreadN; ++j) {
      out.store(range.m + y * Tile::kThreadM + i, range.n + x + j * Tile::kAcross, sums[i][j]);
    }
  }
}

// ---- Split-K

inline constexpr int kSumColumns = 32;  ///< adjacent elements, which a warp loads together
inline constexpr int kSumRows = 16;     ///< warps of a block that adds splits

template <class T>
struct PartsOfSums {
  T at[kSumRows][kSumColumns];
};

/// Adds the splits, in an order that depends only on their number. `threads` threads (a power of two up to kSumRows)
/// work on an element: thread i adds splits i, i + threads, i + 2 threads and so on; then the first thread adds their
/// sums. A single thread would wait for one load after another.
template <class T, class Result>
__global__ void __launch_bounds__(kSumColumns* kSumRows)
    sum_splits(const T* workspace, int splits, int threads, Result result, ProductExtents e) {
  STAGECOACH_SHARED(PartsOfSums<T>, parts);
  const int x = static_cast<int>(threadIdx.x) % kSumColumns;
  const int y = static_cast<int>(threadIdx.x) / kSumColumns;
  const int first = y % threads;
  const int at = (static_cast<int>(blockIdx.x) * (kSumRows / threads) + y / threads) * kSumColumns + x;
  const int row = at / e.pitch();
  const int column = at % e.pitch();
  const bool inside = row < e.m && column < e.n;
  T sum = 0;
#pragma unroll 8
  for (int split = first; split < splits; split += threads) {
    sum += predicated_load(inside, workspace + static_cast<long long>(split) * e.m * e.pitch() + at);
  }
  parts.at[y][x] = sum;
  __syncthreads();  // all sums are complete
  if (first == 0 && inside) {
    for (int other = 1; other < threads; ++other) {
      sum += parts.at[y + other][x];
    }
    result.store(row, column, sum);
  }
}

// ---- Which kernel

template <class T, class Tile, class A, class B, class Out>
void launch_registers(cudaStream_t stream, dim3 grid, const A& a, const B& b, const Out& out, int k_per_split) {
  launch(product_registers<T, Tile, A, B, Out>, grid, Tile::kThreads, 0, stream, a, b, out, k_per_split);
}

template <class T, class A, class B, class Out>
void launch_product(cudaStream_t stream, const ProductPlan& plan, const A& a, const B& b, const Out& out) {
  // For float64, which is for tests, the tiled kernel replaces the faster ones.
  constexpr bool kAll = sizeof(T) == sizeof(float);
  const ProductKernel kernel = kAll ? plan.kernel : std::min(plan.kernel, ProductKernel::tiled);
  const BlockTile tile = kernel == plan.kernel ? plan.tile : block_tile(kernel, out.e);
  const dim3 grid(static_cast<unsigned>(tile.blocks(out.e)), static_cast<unsigned>(plan.splits));
  if (kernel == ProductKernel::plain) {
    return launch(product_plain<T, A, B, Out>, grid, static_cast<unsigned>(tile.n), 0, stream, a, b, out,
                  plan.k_per_split);
  }
  if constexpr (kAll) {
    if (kernel == ProductKernel::tensor_cores) {
      return launch_tensor_cores(stream, grid, tile, a, b, out, plan.k_per_split);
    }
    if (kernel == ProductKernel::warpgroups) {
      return launch_warpgroups(stream, grid, tile, a, b, out, plan.k_per_split);
    }
    if (kernel == ProductKernel::registers) {
      if (tile.m == 16) {
        return launch_registers<T, RegisterTile<16, 128, 16, 8, 2>>(stream, grid, a, b, out, plan.k_per_split);
      }
      return launch_registers<T, RegisterTile<64, 64, 16, 4, 4>>(stream, grid, a, b, out, plan.k_per_split);
    }
  }
  launch(product_tiled<T, A, B, Out>, grid, kTile * kTile, 0, stream, a, b, out, plan.k_per_split);
}

/// Computes the whole product according to the plan.
template <class T, class A, class B, class Result>
void multiply(Device device, const ProductPlan& plan, const A& a, const B& b, const Result& result,
              const ProductExtents& e) {
  const int elements = to_int(std::int64_t{1} * e.m * e.n);
  if (elements == 0) {
    return;
  }
  Workspace<T> workspace(plan.workspace_elements(e), device);  // empty for one split
  const cudaStream_t stream = compute_stream(device);
  launch_product<T>(stream, plan, a, b, Output<T, Result>{result, workspace.data(), e});
  if (plan.splits > 1) {
    const int threads = std::min<int>(std::bit_floor(static_cast<unsigned>(std::max(plan.splits / 4, 1))), kSumRows);
    const int elements_of_block = kSumColumns * kSumRows / threads;
    const int blocks = (e.m * e.pitch() + elements_of_block - 1) / elements_of_block;
    launch(sum_splits<T, Result>, static_cast<unsigned>(blocks), kSumColumns * kSumRows, 0, stream, workspace.data(),
           plan.splits, threads, result, e);
  }
}

// ---- Operands and results that are matrices in memory

/// A negative number that remains negative when it is added to any memory offset (all are below kMaxElements), or to
/// itself.
inline constexpr int kOutside = -(1 << 30);

/// Returns the element at `offset`, or `outside` if the offset is negative.
template <class T>
__device__ T load_at(const T* data, int offset, T outside = 0) {
  return predicated_load(offset >= 0, data + offset, outside);
}

/// Element (mn, k) is data[mn * mn_stride + k * k_stride].
template <class T, bool kContiguousK_>
struct MatrixOperand {
  static constexpr bool kContiguousK = kContiguousK_;
  using Mn = int;  // offsets
  using K = int;
  const T* data;
  int extent;  // of M or N
  int mn_stride;
  int k_stride;
  __device__ Mn mn(int index) const { return index < extent ? index * mn_stride : kOutside; }
  __device__ K k(int index, int end) const { return index < end ? index * k_stride : kOutside; }
  __device__ T load(Mn mn, K k) const { return load_at(data, mn + k); }
  VectorOperand<kContiguousK> vectors() const { return {data, extent, kContiguousK ? mn_stride : k_stride}; }
};

/// data [N, M, S] viewed as a matrix [M, N S].
template <class T>
struct PlanesOperand {
  static constexpr bool kContiguousK = true;
  using Mn = int;  // offsets
  using K = int;
  const T* data;
  int extent;        // M
  FastDivmod plane;  // S
  __device__ Mn mn(int m) const { return m < extent ? m * plane.value() : kOutside; }
  __device__ K k(int index, int end) const {
    const int n = plane.quotient(index);
    return index < end ? n * extent * plane.value() + plane.remainder(index, n) : kOutside;
  }
  __device__ T load(Mn mn, K k) const { return load_at(data, mn + k); }
};

/// out [rows, columns] = the product + bias [columns] (or null).
template <class T>
struct MatrixResult {
  T* data;
  int columns;
  const T* bias;
  __host__ __device__ OutputRows<T> rows() const { return {data, columns, columns, bias}; }
  __device__ bool takes_pairs() const { return rows().are_pairs(); }
  __device__ void store(int m, int n, T value) const { at(m, n) = bias == nullptr ? value : value + bias[n]; }
  __device__ void store(int m, int n, Vector2<T> values) const {
    if (bias != nullptr) {
      for (int j = 0; j < 2; ++j) {
        values.at[j] += bias[n + j];
      }
    }
    reinterpret_cast<Vector2<T>&>(at(m, n)) = values;
  }

 private:
  __device__ T& at(int m, int n) const { return data[static_cast<long long>(m) * columns + n]; }
};

/// weight [rows, columns], and bias [rows] as an additional column of the product. Either may be null and is then not
/// stored.
template <class T>
struct WeightResult {
  T* weight;
  T* bias;
  int columns;
  __host__ __device__ OutputRows<T> rows() const { return {weight, columns, columns, nullptr}; }
  __device__ static bool takes_pairs() { return false; }
  __device__ void store(int m, int n, T value) const {
    if (n < columns && weight != nullptr) {
      weight[static_cast<long long>(m) * columns + n] = value;
    } else if (n == columns && bias != nullptr) {
      bias[m] = value;
    }
  }
  __device__ void store(int, int, const Vector2<T>&) const {}
};

}  // namespace stagecoach::cuda
