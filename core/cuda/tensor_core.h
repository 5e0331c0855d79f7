#pragma once
/// @file
/// The tensor-core instructions for products in TF32: float32 with 10 bits of fraction instead of 23. Compiled for a
/// GPU that lacks one of them, they abort the kernel. In the preset `emulated` a header of tests/emulation replaces
/// this one.
///
/// The first is that of a warp, from compute capability 8.0 on: it multiplies 16 x 8 by 8 x 8, both in registers, and
/// adds the product to 16 x 8 sums in float32. Thread `lane` of the warp holds, with group = lane / 4 and place = lane
/// % 4,
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

// ---- Warpgroups
//
// Compute capability 9.0, compiled for sm_90a, has an instruction for a warpgroup (four warps, 128 threads): it
// multiplies 64 x 8 by 8 x 64, 128, 192 or 256. Tensor cores read both factors from shared memory, so no thread spends
// an instruction on that, and work while the threads continue. Thread `lane` of warp `warp` holds, with group = lane /
// 4 and place = lane % 4, of every 8 columns: columns 2 place, 2 place + 1 of row 16 warp + group, then of row 16 warp
// + group + 8. Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions", tf32, K-major,
// no swizzle.

inline constexpr int kWarpgroup = 128;     ///< threads
inline constexpr int kWarpgroupRows = 64;  ///< of the product
inline constexpr int kCoreRows = 8;        ///< of a core matrix
inline constexpr int kCoreK = 4;           ///< elements of a row of a core matrix: 16 bytes

/// Where a factor begins in shared memory: PTX's matrix descriptor, whose leading and stride byte offsets are those
/// along K and along the rows. It consists of core matrices of 8 rows (of `a`, or columns of `b`) x 4 along K, each of
/// 32 floats, row by row. Core matrices are any distance apart: columns of `b` may be the pixels of a window in shared
/// memory, from any pixel on.
struct StridedFactor {
  std::uint32_t lower;  // halves of the descriptor
  std::uint32_t upper;
  /// Returns the factor that begins `floats` after this one, a multiple of 4.
  __device__ StridedFactor operator+(int floats) const { return {lower + static_cast<unsigned>(floats) / 4, upper}; }
  __device__ std::uint64_t descriptor() const { return std::uint64_t{upper} << 32 | lower; }
};

/// `along_k` and `along_rows` are the distances in floats between core matrices, multiples of 4.
__device__ inline StridedFactor strided_factor(const float* first, int along_k, int along_rows) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(first));
  return {(address >> 4 & 0x3fffU) | static_cast<unsigned>(along_k) / 4 << 16, static_cast<unsigned>(along_rows) / 4};
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define STAGECOACH_WARPGROUP_ASM(...) asm volatile(__VA_ARGS__)
#else
#define STAGECOACH_WARPGROUP_ASM(...) __trap()
#endif

/// Makes this thread's stores to shared memory visible to tensor cores, after the next barrier.
__device__ inline void publish_to_tensor_cores() {
  STAGECOACH_WARPGROUP_ASM("fence.proxy.async.shared::cta;" ::: "memory");
}

/// Must precede the products of two factors, as the sums may have been used meanwhile.
__device__ inline void begin_products() { STAGECOACH_WARPGROUP_ASM("wgmma.fence.sync.aligned;" ::: "memory"); }

/// Must follow the products of two factors.
__device__ inline void end_products() { STAGECOACH_WARPGROUP_ASM("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/// Waits until all products of this warpgroup are in their sums, and nothing reads their factors any more.
__device__ inline void wait_for_products() {
  STAGECOACH_WARPGROUP_ASM("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

#define STAGECOACH_SUMS8(s, i)                                                                                \
  "+f"(s[i]), "+f"(s[i + 1]), "+f"(s[i + 2]), "+f"(s[i + 3]), "+f"(s[i + 4]), "+f"(s[i + 5]), "+f"(s[i + 6]), \
      "+f"(s[i + 7])
#define STAGECOACH_SUMS32(s, i) \
  STAGECOACH_SUMS8(s, i), STAGECOACH_SUMS8(s, i + 8), STAGECOACH_SUMS8(s, i + 16), STAGECOACH_SUMS8(s, i + 24)

#define STAGECOACH_NAMES32                                                 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define STAGECOACH_NAMES64                                                             \
  STAGECOACH_NAMES32                                                                   \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define STAGECOACH_NAMES96                                                             \
  STAGECOACH_NAMES64                                                                   \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define STAGECOACH_NAMES112 \
  STAGECOACH_NAMES96        \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define STAGECOACH_NAMES128 \
  STAGECOACH_NAMES112       \
  ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

/// Starts sums += a b, of 64 x 8 by 8 x `columns`. A thread has `count` of the sums, which the instruction calls
/// `names`; `a_name` and `b_name` are the numbers after them.
#define STAGECOACH_START_PRODUCT(count, columns, names, a_name, b_name, ...)                                           \
  __device__ __forceinline__ void start_product(float(&sums)[count], StridedFactor a, StridedFactor b) {               \
    STAGECOACH_WARPGROUP_ASM(                                                                                          \
        "{ .reg .pred p; setp.eq.u32 p, 0, 0;\n\t"                                                                     \
        "wgmma.mma_async.sync.aligned.m64n" columns "k8.f32.tf32.tf32 {" names "}, " a_name ", " b_name ", p, 1, 1; }" \
        : __VA_ARGS__                                                                                                  \
        : "l"(a.descriptor()), "l"(b.descriptor())                                                                     \
        : "memory");                                                                                                   \
  }

STAGECOACH_START_PRODUCT(32, "64", STAGECOACH_NAMES32, "%32", "%33", STAGECOACH_SUMS32(sums, 0))
STAGECOACH_START_PRODUCT(64, "128", STAGECOACH_NAMES64, "%64", "%65", STAGECOACH_SUMS32(sums, 0),
                         STAGECOACH_SUMS32(sums, 32))
STAGECOACH_START_PRODUCT(96, "192", STAGECOACH_NAMES96, "%96", "%97", STAGECOACH_SUMS32(sums, 0),
                         STAGECOACH_SUMS32(sums, 32), STAGECOACH_SUMS32(sums, 64))
STAGECOACH_START_PRODUCT(112, "224", STAGECOACH_NAMES112, "%112", "%113", STAGECOACH_SUMS32(sums, 0),
                         STAGECOACH_SUMS32(sums, 32), STAGECOACH_SUMS32(sums, 64), STAGECOACH_SUMS8(sums, 96),
                         STAGECOACH_SUMS8(sums, 104))
STAGECOACH_START_PRODUCT(128, "256", STAGECOACH_NAMES128, "%128", "%129", STAGECOACH_SUMS32(sums, 0),
                         STAGECOACH_SUMS32(sums, 32), STAGECOACH_SUMS32(sums, 64), STAGECOACH_SUMS32(sums, 96))

}  // namespace stagecoach::cuda
