#pragma once
/// @file
/// Loading tiles of matrices whose rows are whole vectors of four: a quarter of the loads of tile_loader.cuh, and no
/// tables, as an address is a product and a sum. For the fifth kernel of matrix_product.cuh, whose factors are in core
/// matrices (warpgroups.cuh).

#include <algorithm>

#include "core/cuda/device_code.h"
#include "core/kernels/cuda/tensor_cores.cuh"
#include "core/kernels/cuda/vectorized.cuh"

namespace stagecoach::cuda {

using Vector4 = Vector<float, 4>;

/// A matrix whose rows begin `stride` apart. Along its rows is K, or else M or N.
template <bool kContiguousK_>
struct VectorOperand {
  static constexpr bool kContiguousK = kContiguousK_;
  const float* data;
  int extent;  // of M or N
  int stride;
  /// Whether rows are whole vectors.
  bool is_vectorized() const { return is_aligned<4>(data) && stride % 4 == 0; }
};

__device__ inline Vector4 load_vector(bool inside, const float* address) {
  return predicated_load(inside, reinterpret_cast<const Vector4*>(address), Vector4{});
}

__device__ inline Vector4 rounded(const Vector4& values) { return map_vector<float, 4>(RoundToTf32{}, values); }

/// One thread's part of loading kMn x kK elements of a VectorOperand.
template <int kMn, int kK, int kThreads, bool kContiguousK>
class VectorLoader;

/// A vector is a row of a core matrix.
template <int kMn, int kK, int kThreads>
class VectorLoader<kMn, kK, kThreads, true> {
 public:
  __device__ VectorLoader(const VectorOperand<true>& operand, int first)
      : from_(operand.data + (first + mn()) * operand.stride + k()),
        step_(kStep * operand.stride),
        rows_(operand.extent - first - mn()) {}

  /// Loads the tile at K index `begin` into registers; the thread continues while the values arrive.
  __device__ void load(int begin, int end) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      values_[i] = load_vector(begin + k() < end && i * kStep < rows_, from_ + (i * step_ + begin));
    }
  }
  template <class Tile>
  __device__ void put(Tile& tile) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      tile.row(k(), mn() + i * kStep) = rounded(values_[i]);
    }
  }

 private:
  static constexpr int kAlongK = kK / 4;  // threads
  static constexpr int kStep = kThreads / kAlongK;
  static constexpr int kCount = kMn / kStep;
  static_assert(kMn % kStep == 0, "the threads share the tile evenly");

  __device__ static int k() { return static_cast<int>(threadIdx.x) % kAlongK * 4; }
  __device__ static int mn() { return static_cast<int>(threadIdx.x) / kAlongK; }

  const float* from_;
  int step_;
  int rows_;  // from the thread's first one to the end of the matrix
  Vector4 values_[kCount];
};

/// A thread loads squares of 4 x 4 and transposes them. A warp loads 16 K indices of 32 rows or columns: of each K
/// index a memory transaction, and any eight adjacent threads store in different banks.
template <int kMn, int kK, int kThreads>
class VectorLoader<kMn, kK, kThreads, false> {
 public:
  __device__ VectorLoader(const VectorOperand<false>& operand, int first)
      : from_(operand.data + k() * operand.stride + first + mn()),
        stride_(operand.stride),
        inside_(first + mn() < operand.extent) {}

  __device__ void load(int begin, int end) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
#pragma unroll
      for (int row = 0; row < 4; ++row) {
        const int at = begin + i * kStep + row;
        values_[i][row] = load_vector(inside_ && has(i) && k() + at < end, from_ + at * stride_);
      }
    }
  }
  template <class Tile>
  __device__ void put(Tile& tile) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
#pragma unroll
      for (int j = 0; j < 4 && has(i); ++j) {
        tile.row(k() + i * kStep, mn() + j) =
            rounded({{values_[i][0].at[j], values_[i][1].at[j], values_[i][2].at[j], values_[i][3].at[j]}});
      }
    }
  }
  /// Adds the loaded values, over K, to the sums of this thread's four rows or columns.
  __device__ void add_to(Vector4& sums) const {
#pragma unroll
    for (int i = 0; i < 4 * kCount; ++i) {
      sums = map_vector<float, 4>([](float a, float b) { return a + b; }, sums, values_[i / 4][i % 4]);
    }
  }
  /// As many threads have the same rows or columns.
  static constexpr int kParts = std::min(kThreads * 4 / kMn, kK / 4);
  __device__ static void put_sums(float (&parts)[kParts][kMn], const Vector4& sums) {
    if (has(0)) {
      reinterpret_cast<Vector4&>(parts[k() / 4][mn()]) = sums;
    }
  }

 private:
  static constexpr int kWarpsAcross = kMn / 32;
  static constexpr int kStep = kThreads / 32 / kWarpsAcross * 16;
  static constexpr int kCount = std::max(kK / kStep, 1);
  static_assert(kThreads / 32 % kWarpsAcross == 0 && (kK % kStep == 0 || kStep % kK == 0));

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ static int warp() { return static_cast<int>(threadIdx.x) / 32; }
  __device__ static int k() { return warp() / kWarpsAcross * 16 + lane() / 2 % 4 * 4; }
  __device__ static int mn() { return warp() % kWarpsAcross * 32 + lane() / 8 * 8 + lane() % 2 * 4; }
  /// Whether square i is in the tile: if there are more threads than squares, some have none.
  __device__ static bool has(int i) { return k() + i * kStep < kK; }

  const float* from_;
  int stride_;
  bool inside_;
  Vector4 values_[kCount][4];
};

}  // namespace stagecoach::cuda
