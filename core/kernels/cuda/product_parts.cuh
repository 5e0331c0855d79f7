#pragma once
/// @file
/// What the kernels of matrix_product.cuh share: where a block works, how its threads fetch tiles together, and where
/// results go.

#include "core/cuda/device_code.h"
#include "core/kernels/cuda/neighbours.cuh"
#include "core/kernels/cuda/product_plan.h"

namespace stagecoach::cuda {

/// Where this block works: its tile of the result and its slice of the depth.
struct Place {
  __device__ Place(const ProductExtents& e, int tile_rows, int tile_columns, int depth_of_slice) {
    // Down the rows first: blocks that run together want the same columns, which are the large operand.
    const int down = (e.rows + tile_rows - 1) / tile_rows;
    row = static_cast<int>(blockIdx.x) % down * tile_rows;
    column = static_cast<int>(blockIdx.x) / down * tile_columns;
    begin = static_cast<int>(blockIdx.y) * depth_of_slice;
    end = begin + depth_of_slice < e.depth ? begin + depth_of_slice : e.depth;
  }
  int row;
  int column;
  int begin;  // of the depth
  int end;
};

struct AsItIs {
  template <class T>
  __device__ T operator()(T value) const {
    return value;
  }
};

// ---- Fetching tiles
//
// Where an element lies follows from its outer index (a row of `a`, a column of `b`) and its depth. To work out either
// costs up to twenty instructions, as convolutions divide. So a thread works out one of the two, which is the same for
// all its elements, and looks up the other in a table that the block shares.

/// One thread's share of fetching kOuter x kDepth elements of an operand.
template <class T, int kOuter, int kDepth, int kThreads, class Operand, bool = Operand::kDepthInARow>
class Fetch;

/// Neighbouring threads lie along the depth: a thread has one depth a tile, and looks up the outer indices. A warp
/// takes 8 depths of 4 outer indices: 8 floats are what memory gives at once, and four times 8 meet fewer banks of the
/// shared memory than twice 16.
template <class T, int kOuter, int kDepth, int kThreads, class Operand>
class Fetch<T, kOuter, kDepth, kThreads, Operand, true> {
 public:
  static_assert(kThreads % kDepth == 0 && kOuter * kDepth % kThreads == 0, "the threads share the tile evenly");
  struct Table {
    typename Operand::Outer outers[kOuter];
  };

  /// For the outer indices from `first` on. The table is whole behind the next barrier.
  __device__ Fetch(const Operand& operand, int first, Table& table)
      : depth_(lane() % 8 + 8 * (warp() % kWarpsADepth)), outer_(lane() / 8 + 4 * (warp() / kWarpsADepth)) {
    for (int o = static_cast<int>(threadIdx.x); o < kOuter; o += kThreads) {
      table.outers[o] = operand.outer(first + o);
    }
  }
  /// Puts into the table what the tile at depth `begin` needs; nothing lies at `end` and behind it.
  __device__ void prepare(const Operand&, int, int, Table&) const {}
  /// From memory into registers: the values arrive while the thread goes on.
  __device__ void load(const Operand& operand, int begin, int end, const Table& table) {
    const auto depth = operand.depth(begin + depth_, end);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      values_[i] = operand.load(table.outers[outer_ + i * kStep], depth);
    }
  }
  /// From registers into shared memory, through `change`.
  template <int kPitch, class Change>
  __device__ void put(T (&tile)[kDepth][kPitch], Change change) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      tile[depth_][outer_ + i * kStep] = change(values_[i]);
    }
  }

 private:
  static constexpr int kCount = kOuter * kDepth / kThreads;
  static constexpr int kStep = kThreads / kDepth;  // between a thread's elements
  static constexpr int kWarpsADepth = kDepth / 8;
  static_assert(kDepth % 8 == 0 && kThreads / 32 % kWarpsADepth == 0);

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ static int warp() { return static_cast<int>(threadIdx.x) / 32; }

  int depth_;
  int outer_;
  T values_[kCount];
};

/// Neighbouring threads lie along the outer index: a thread has one of these, and looks up the depths.
template <class T, int kOuter, int kDepth, int kThreads, class Operand>
class Fetch<T, kOuter, kDepth, kThreads, Operand, false> {
 public:
  static_assert(kThreads % kOuter == 0 && kOuter * kDepth % kThreads == 0, "the threads share the tile evenly");
  struct Table {
    typename Operand::Depth depths[kDepth];
  };

  __device__ Fetch(const Operand& operand, int first, Table&)
      : depth_(static_cast<int>(threadIdx.x) / kOuter),
        outer_(static_cast<int>(threadIdx.x) % kOuter),
        from_(operand.outer(first + outer_)) {}
  __device__ void prepare(const Operand& operand, int begin, int end, Table& table) const {
    const int d = static_cast<int>(threadIdx.x);
    if (d < kDepth) {
      table.depths[d] = operand.depth(begin + d, end);
    }
  }
  __device__ void load(const Operand& operand, int, int, const Table& table) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      values_[i] = operand.load(from_, table.depths[depth_ + i * kStep]);
    }
  }
  template <int kPitch, class Change>
  __device__ void put(T (&tile)[kDepth][kPitch], Change change) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      tile[depth_ + i * kStep][outer_] = change(values_[i]);
    }
  }

 private:
  static constexpr int kCount = kOuter * kDepth / kThreads;
  static constexpr int kStep = kThreads / kOuter;
  int depth_;
  int outer_;
  typename Operand::Outer from_;
  T values_[kCount];
};

/// Brings the tiles of both operands, one depth after the other. While a tile is multiplied, the values of the next are
/// on their way.
template <class T, class Tile, class A, class B>
class Feed {
  using FetchA = Fetch<T, Tile::kRows, Tile::kDepth, Tile::kThreads, A>;
  using FetchB = Fetch<T, Tile::kColumns, Tile::kDepth, Tile::kThreads, B>;

 public:
  struct Tables {
    typename FetchA::Table a;
    typename FetchB::Table b;
  };

  /// Has the first tile on its way. All threads of the block must call it, and the others.
  __device__ Feed(const A& a, const B& b, const Place& place, Tables& tables)
      : begin_(place.begin), end_(place.end), a_(a, place.row, tables.a), b_(b, place.column, tables.b) {
    prepare(a, b, tables);
    __syncthreads();  // the tables are whole
    load(a, b, tables);
    __syncthreads();  // nobody needs them any more
  }
  /// Into shared memory, through `change`. The tiles, and the tables of the next, are whole behind the next barrier.
  template <class Tiles, class Change = AsItIs>
  __device__ void put(const A& a, const B& b, Tables& tables, Tiles& tiles, Change change = {}) {
    a_.put(tiles.a, change);
    b_.put(tiles.b, change);
    begin_ += Tile::kDepth;
    prepare(a, b, tables);
  }
  /// Sends for the tile behind the one that was put. The tables are free behind the next barrier.
  __device__ void load(const A& a, const B& b, const Tables& tables) {
    a_.load(a, begin_, end_, tables.a);
    b_.load(b, begin_, end_, tables.b);
  }

 private:
  __device__ void prepare(const A& a, const B& b, Tables& tables) {
    a_.prepare(a, begin_, end_, tables.a);
    b_.prepare(b, begin_, end_, tables.b);
  }
  int begin_;  // of the tile that is sent for
  int end_;
  FetchA a_;
  FetchB b_;
};

// ---- Results

/// Where a slice's result goes: to `result`, or, when there are several slices, to an array of its own.
template <class T, class Result>
struct Output {
  Result result;
  T* partial;  // [slices, rows, columns], or null
  ProductExtents e;

  __device__ void store(int m, int n, T value) const {
    if (m >= e.rows || n >= e.columns) {
      return;
    }
    if (partial == nullptr) {
      result.store(m, n, value);
    } else {
      partial[place(m, n)] = value;
    }
  }
  /// Columns n and n + 1; n is even.
  __device__ void store(int m, int n, const Two<T>& values) const {
    if (partial == nullptr && m < e.rows && n + 2 <= e.columns && result.in_twos()) {
      result.store(m, n, values);
    } else if (partial != nullptr && m < e.rows && n + 2 <= e.columns && e.columns % 2 == 0) {
      *reinterpret_cast<Two<T>*>(partial + place(m, n)) = values;
    } else {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        store(m, n + j, values.at[j]);
      }
    }
  }

 private:
  __device__ long long place(int m, int n) const {
    return (static_cast<long long>(blockIdx.y) * e.rows + m) * e.columns + n;
  }
};

}  // namespace stagecoach::cuda
