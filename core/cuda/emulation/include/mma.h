#pragma once
/// @file
/// Products on tensor cores in TF32 (nvcuda::wmma), for the emulation. Every thread of a warp keeps the whole of both
/// factors, and its own part of the sums. What a GPU leaves undefined is an error here: a call that not all threads of
/// a warp make, and a place in memory that is not aligned. Source: CUDA C++ Programming Guide, "Warp Matrix Functions".

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <source_location>
#include <type_traits>

#include "core/error.h"

namespace nvcuda::wmma {

struct row_major;
struct col_major;
struct matrix_a;
struct matrix_b;
struct accumulator;
namespace precision {
struct tf32;
}
enum layout_t { mem_row_major, mem_col_major };

/// A factor: a [m, k] or b [k, n].
template <class Use, int m, int n, int k, class T, class Layout = void>
struct fragment {
  static constexpr int kRows = std::is_same_v<Use, matrix_a> ? m : k;
  static constexpr int kColumns = std::is_same_v<Use, matrix_a> ? k : n;
  float at[kRows][kColumns];
};

/// The part of the sums [m, n] that is this thread's: all elements whose number is that of the thread, modulo 32.
template <int m, int n, int k>
struct fragment<accumulator, m, n, k, float, void> {
  static constexpr int kCount = m * n / 32;
  float mine[kCount];
};

inline unsigned lane() { return ((threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x) % 32; }

inline void require_alignment(const float* memory, unsigned pitch) {
  if (reinterpret_cast<std::uintptr_t>(memory) % 32 != 0 || pitch % 4 != 0) {
    throw stagecoach::Error("tensor cores: a piece must begin at a multiple of 32 bytes, its rows at multiples of 16");
  }
}

/// Rounds to 10 bits of fraction, ties away from 0 (the instruction cvt.rna.tf32.f32).
inline float __float_to_tf32(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  if ((bits & 0x7f800000U) != 0x7f800000U) {  // infinite, or not a number
    bits = (bits + 0x1000U) & ~0x1fffU;
  }
  std::memcpy(&value, &bits, sizeof(bits));
  return value;
}

/// What a tensor core sees of a factor: the bits behind the 10th of the fraction are dropped.
inline float seen(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  bits &= ~0x1fffU;
  std::memcpy(&value, &bits, sizeof(bits));
  return value;
}

template <int m, int n, int k>
void fill_fragment(fragment<accumulator, m, n, k, float>& sums, float value) {
  for (float& sum : sums.mine) {
    sum = value;
  }
}

template <class Use, int m, int n, int k, class T, class Layout>
void load_matrix_sync(fragment<Use, m, n, k, T, Layout>& factor, const float* memory, unsigned pitch,
                      std::source_location where = std::source_location::current()) {
  require_alignment(memory, pitch);
  __syncwarp(where);
  for (int row = 0; row < factor.kRows; ++row) {
    for (int column = 0; column < factor.kColumns; ++column) {
      factor.at[row][column] =
          std::is_same_v<Layout, row_major> ? memory[row * pitch + column] : memory[column * pitch + row];
    }
  }
}

/// out = a b + sums
template <int m, int n, int k, class LayoutA, class LayoutB>
void mma_sync(fragment<accumulator, m, n, k, float>& out,
              const fragment<matrix_a, m, n, k, precision::tf32, LayoutA>& a,
              const fragment<matrix_b, m, n, k, precision::tf32, LayoutB>& b,
              const fragment<accumulator, m, n, k, float>& sums,
              std::source_location where = std::source_location::current()) {
  __syncwarp(where);
  for (int i = 0; i < out.kCount; ++i) {
    const int element = i * 32 + static_cast<int>(lane());
    float sum = sums.mine[i];
    for (int d = 0; d < k; ++d) {
      sum += seen(a.at[element / n][d]) * seen(b.at[d][element % n]);
    }
    out.mine[i] = sum;
  }
}

template <int m, int n, int k>
void store_matrix_sync(float* memory, const fragment<accumulator, m, n, k, float>& sums, unsigned pitch,
                       layout_t layout, std::source_location where = std::source_location::current()) {
  require_alignment(memory, pitch);
  __syncwarp(where);
  for (int i = 0; i < sums.kCount; ++i) {
    const unsigned element = static_cast<unsigned>(i) * 32 + lane();
    const unsigned row = element / n;
    const unsigned column = element % n;
    memory[layout == mem_row_major ? row * pitch + column : column * pitch + row] = sums.mine[i];
  }
}

}  // namespace nvcuda::wmma
