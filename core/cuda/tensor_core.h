#pragma once
/// @file
/// The instruction of tensor cores for products in TF32: float32 with 10 bits of fraction in place of 23. A warp
/// multiplies 16 x 8 by 8 x 8 and adds to 16 x 8 sums in float32. On a GPU it needs compute capability 8.0; without it
/// the kernel is stopped. On a CPU it is emulated.
///
/// Thread `lane` of the warp holds, with group = lane / 4 and place = lane % 4,
///   a:    rows group, group + 8 of depth place, then the same of depth place + 4
///   b:    column group of depth place, then of depth place + 4
///   sums: columns 2 place, 2 place + 1 of row group, then of row group + 8
/// Source: PTX ISA, "Matrix Fragments for mma.m16n8k8".
///
/// Both forms define
///   std::uint32_t round_to_tf32(float), to the nearest, ties to even; what lies behind the 10th bit is not looked at
///   void multiply_tf32(float (&sums)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2])

#ifdef STAGECOACH_EMULATED
#include "core/cuda/emulation/tensor_core.h"
#else
#include "core/cuda/gpu/tensor_core.h"
#endif
