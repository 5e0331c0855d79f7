#pragma once
/// @file
/// What the benchmarks of the CUDA kernels have in common: a GPU, tensors there, and the time of work on our stream.

#include "core/tensor.h"
#include "tests/benchmarks/cuda_timing.h"

namespace stagecoach {

inline constexpr Device kGpu{DeviceType::cuda, 0};

/// Numbers on [-0.5, 0.5); large tensors repeat a million of them. (Zeros would need less power, and run faster.)
Tensor random_tensor(const Shape& shape);

Stopwatch our_stopwatch();

/// Seconds of one run of `body`, which gives work to our stream; see median_seconds.
double our_seconds(const Work& body);

/// Runs `body`; returns the program's exit status, and says in one line why it did not work: 2 without a GPU, 1 else.
int run_on_gpu(const char* program, const Work& body);

}  // namespace stagecoach
