#pragma once
/// @file
/// Shared parts of the kernels of matrix_product.cuh: which tile a block computes, how its threads load tiles together,
/// and where results are stored.

#include "core/cuda/device_code.h"
#include "core/kernels/cuda/product_plan.h"
#include "core/kernels/cuda/vectorized.cuh"

namespace stagecoach::cuda {

/// The work of this block: a tile of the result, over a split of K.
struct BlockRange {
  __device__ BlockRange(const ProductExtents& e, int tile_m, int tile_n, int k_per_split) {
    // Along M first: blocks that run concurrently read the same columns of `b`, which is the large operand.
    const int tiles_m = (e.m + tile_m - 1) / tile_m;
    m = static_cast<int>(blockIdx.x) % tiles_m * tile_m;
    n = static_cast<int>(blockIdx.x) / tiles_m * tile_n;
    k_begin = static_cast<int>(blockIdx.y) * k_per_split;
    k_end = k_begin + k_per_split < e.k ? k_begin + k_per_split : e.k;
  }
  int m;
  int n;
  int k_begin;
  int k_end;
};

struct Identity {
  template <class T>
  __device__ T operator()(T value) const {
    return value;
  }
};

// ---- Tiles in shared memory

// Loaders store by these two functions. Those here are for an array [k][mn]; warpgroups.cuh has them for its layout.

template <class T, int kK, int kPitch>
__device__ void put_value(T (&tile)[kK][kPitch], int k, int mn, T value) {
  tile[k][mn] = value;
}
/// Stores values that are adjacent along K. `k` is a multiple of their number.
template <class T, int kK, int kPitch, int kCount>
__device__ void put_along_k(T (&tile)[kK][kPitch], int k, int mn, const T (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    tile[k + i][mn] = values[i];
  }
}

// ---- Loading tiles
//
// The address of an element is computed from its M or N index (a row of `a`, a column of `b`) and its K index. Each
// part takes up to twenty instructions, as convolutions divide. So a thread computes the part that is the same for all
// its elements, and looks up the other in a table that the block shares.

/// One thread's part of loading kMn x kK elements of an operand.
template <class T, int kMn, int kK, int kThreads, class Operand, bool = Operand::kContiguousK>
class TileLoader;

/// Adjacent threads are along K: a thread has one K index per tile, and looks up the M or N indices. A warp loads 8 K
/// indices of each of 4 rows: 8 floats are one memory transaction, and 4 x 8 has fewer bank conflicts in shared memory
/// than 2 x 16.
template <class T, int kMn, int kK, int kThreads, class Operand>
class TileLoader<T, kMn, kK, kThreads, Operand, true> {
 public:
  static_assert(kThreads % kK == 0 && kMn * kK % kThreads == 0, "the threads share the tile evenly");
  struct Table {
    typename Operand::Mn mns[kMn];
  };

  /// Prepares the M or N indices from `first` on. The table is complete after the next barrier.
  __device__ TileLoader(const Operand& operand, int first, Table& table)
      : k_(lane() % 8 + 8 * (warp() % kWarpsPerK)), mn_(lane() / 8 + 4 * (warp() / kWarpsPerK)) {
    for (int i = static_cast<int>(threadIdx.x); i < kMn; i += kThreads) {
      table.mns[i] = operand.mn(first + i);
    }
  }
  /// Fills the table for the tile at K index `begin`; the operand ends at `end`.
  __device__ void prepare(const Operand&, int, int, Table&) const {}
  /// Loads from memory into registers; the thread continues while the values arrive.
  __device__ void load(const Operand& operand, int begin, int end, const Table& table) {
    const auto k = operand.k(begin + k_, end);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      values_[i] = operand.load(table.mns[mn_ + i * kStep], k);
    }
  }
  /// Stores the registers in shared memory, each value transformed by `change`.
  template <class Tile, class Change>
  __device__ void put(Tile& tile, Change change) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      put_value(tile, k_, mn_ + i * kStep, change(values_[i]));
    }
  }

 private:
  static constexpr int kCount = kMn * kK / kThreads;
  static constexpr int kStep = kThreads / kK;  // distance between a thread's elements
  static constexpr int kWarpsPerK = kK / 8;
  static_assert(kK % 8 == 0 && kThreads / 32 % kWarpsPerK == 0);

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ static int warp() { return static_cast<int>(threadIdx.x) / 32; }

  int k_;
  int mn_;
  T values_[kCount];
};

/// Adjacent threads are along M or N: a thread has one of these indices and several adjacent K indices, which it looks
/// up. The table has a half for tiles with even numbers and one for odd ones, so that one is filled while the other is
/// read.
template <class T, int kMn, int kK, int kThreads, class Operand>
class TileLoader<T, kMn, kK, kThreads, Operand, false> {
 public:
  static_assert(kThreads % kMn == 0 && kMn * kK % kThreads == 0, "the threads share the tile evenly");
  struct alignas(16) Table {
    typename Operand::K ks[2][kK];
  };

  __device__ TileLoader(const Operand& operand, int first, Table&)
      : k_(static_cast<int>(threadIdx.x) / kMn * kCount),
        mn_(static_cast<int>(threadIdx.x) % kMn),
        from_(operand.mn(first + mn_)) {}
  __device__ void prepare(const Operand& operand, int begin, int end, Table& table) const {
    const int k = static_cast<int>(threadIdx.x);
    if (k < kK) {
      table.ks[half_of(begin)][k] = operand.k(begin + k, end);
    }
  }
  __device__ void load(const Operand& operand, int begin, int, const Table& table) {
    const auto& ks = table.ks[half_of(begin)];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      values_[i] = operand.load(from_, ks[k_ + i]);
    }
  }
  template <class Tile, class Change>
  __device__ void put(Tile& tile, Change change) const {
    T changed[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      changed[i] = change(values_[i]);
    }
    put_along_k(tile, k_, mn_, changed);
  }

 private:
  static constexpr int kCount = kMn * kK / kThreads;

  static_assert((kK & (kK - 1)) == 0, "so that adding kK changes one bit of begin");
  __device__ static int half_of(int begin) { return begin & kK ? 1 : 0; }

  int k_;
  int mn_;
  typename Operand::Mn from_;
  T values_[kCount];
};

/// Loads the tiles of both operands, one after the other along K. While a tile is multiplied, the values of the next
/// one are loaded into registers.
template <class T, class Tile, class A, class B>
class DoubleBuffer {
  using LoaderA = TileLoader<T, Tile::kM, Tile::kK, Tile::kThreads, A>;
  using LoaderB = TileLoader<T, Tile::kN, Tile::kK, Tile::kThreads, B>;

 public:
  struct Tables {
    typename LoaderA::Table a;
    typename LoaderB::Table b;
  };

  /// Starts to load the first tile. All threads of the block must call it and the other functions.
  __device__ DoubleBuffer(const A& a, const B& b, const BlockRange& range, Tables& tables)
      : begin_(range.k_begin), end_(range.k_end), a_(a, range.m, tables.a), b_(b, range.n, tables.b) {
    prepare(a, b, tables);
    __syncthreads();  // the tables are complete
    load(a, b, tables);
    __syncthreads();  // all threads have read them
  }
  /// Stores the loaded tile in shared memory, each value transformed by `change`. The tiles, and the tables of the next
  /// ones, are complete after the next barrier.
  template <class Tiles, class Change = Identity>
  __device__ void put(const A& a, const B& b, Tables& tables, Tiles& tiles, Change change = {}) {
    a_.put(tiles.a, change);
    b_.put(tiles.b, change);
    begin_ += Tile::kK;
    prepare(a, b, tables);
  }
  /// Starts to load the tile after the one that `put` stored. The tables allow the next `put` without a barrier.
  __device__ void load(const A& a, const B& b, const Tables& tables) {
    a_.load(a, begin_, end_, tables.a);
    b_.load(b, begin_, end_, tables.b);
  }

 private:
  __device__ void prepare(const A& a, const B& b, Tables& tables) {
    a_.prepare(a, begin_, end_, tables.a);
    b_.prepare(b, begin_, end_, tables.b);
  }
  int begin_;  // K index of the tile to load next
  int end_;
  LoaderA a_;
  LoaderB b_;
};

// ---- Results

/// A result in rows. The biases of the columns are added to it.
template <class T>
struct OutputRows {
  T* data;    // null if the result is not stored
  int pitch;  // between rows
  int columns;
  const T* bias;  // or null
  /// Returns whether an even column and the next one can be stored at once.
  __host__ __device__ bool are_pairs() const { return pitch % 2 == 0 && columns % 2 == 0 && is_aligned<2>(data); }
};

/// Stores the result of a split: in `result` or, if there are several splits, in the workspace.
template <class T, class Result>
struct Output {
  Result result;
  T* workspace;  // [splits, M, N], or null
  ProductExtents e;

  __device__ void store(int m, int n, T value) const {
    if (m >= e.m || n >= e.n) {
      return;
    }
    if (workspace == nullptr) {
      result.store(m, n, value);
    } else {
      workspace[index(m, n)] = value;
    }
  }
  /// Stores columns n and n + 1; n is even.
  __device__ void store(int m, int n, const Vector2<T>& values) const {
    if (workspace == nullptr && m < e.m && n + 2 <= e.n && result.takes_pairs()) {
      result.store(m, n, values);
    } else if (workspace != nullptr && m < e.m && n + 2 <= e.n) {
      *reinterpret_cast<Vector2<T>*>(workspace + index(m, n)) = values;
    } else {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        store(m, n + j, values.at[j]);
      }
    }
  }
  /// Returns where the first `columns` columns are stored, a multiple of 2.
  __device__ OutputRows<T> rows(int columns) const {
    return workspace == nullptr ? result.rows() : OutputRows<T>{workspace + index(0, 0), e.pitch(), columns, nullptr};
  }

 private:
  __device__ long long index(int m, int n) const {
    return (static_cast<long long>(blockIdx.y) * e.m + m) * e.pitch() + n;
  }
};

}  // namespace stagecoach::cuda
