#pragma once
/// @file
/// What every `.cu` file begins with: the language of device code, and `launch`. On a GPU it is that of nvcc
/// (gpu/device_code.h); in the preset `emulated` the same sources are plain C++ (emulation/device_code.h).
///
/// Both forms define
///   launch(kernel, grid, block, shared_bytes, stream, arguments…), which throws Error with the kernel's name,
///   wait_for_earlier_kernels(), with which every kernel begins: see core/cuda/overlap.h,
///   load_if(inside, address, outside = 0): the value there, in the GPU's memory, or `outside`,
///   STAGECOACH_SHARED(Type, name): `name` is one object that the threads of a block share, unset at first.

#include "core/cuda/check.h"

#ifdef STAGECOACH_EMULATED
#include "core/cuda/emulation/device_code.h"
#else
#include "core/cuda/gpu/device_code.h"
#endif
