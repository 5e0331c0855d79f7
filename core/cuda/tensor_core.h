#pragma once
/// @file
/// The tensor-core instruction for products in TF32: float32 with 10 bits of fraction instead of 23. A warp multiplies
/// 16 x 8 by 8 x 8 and adds the product to 16 x 8 sums in float32. It requires compute capability 8.0; without it the
/// kernel is aborted. In the preset `emulated` a header of tests/emulation replaces this one.
///
/// Thread `lane` of the warp holds, with group = lane / 4 and place = lane % 4,
///   a:    rows group, group + 8 of k = place, then the same of k = place + 4
///   b:    column group of k = place, then of k = place + 4
///   sums: columns 2 place, 2 place + 1 of row group, then of row group + 8
/// Source: PTX ISA, "Matrix Fragments for mma.m16n8k8".

#include <cuda_runtime.h>

#include <cstdint>

namespace stagecoach::cuda {

/// Rounds to nearest, ties to even; the instruction below ignores the bits after the 10th.
__device__ inline std::uint32_t round_to_tf32(float value) {
#if __CUDA_ARCH__ >= 900
  std::uint32_t rounded;
  asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(value));
  return rounded;
#else  // the instruction of older GPUs rounds ties another way
  const std::uint32_t bits = __float_as_uint(value);
  return isfinite(value) ? bits + 0xfffU + (bits >> 13 & 1U) : bits;
#endif
}

/// sums += a b
__device__ inline void multiply_tf32(float (&sums)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  // volatile: all threads of the warp must execute it together, so it must not be moved into a branch.
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  __trap();  // compiled for an older GPU: no result is better than a wrong one
#endif
}

}  // namespace stagecoach::cuda
