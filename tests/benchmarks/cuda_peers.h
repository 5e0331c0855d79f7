#pragma once
/// @file
/// NVIDIA's own libraries on the same work: cuBLAS for matrix products, cuDNN for convolutions. They are looked for
/// when the program runs and never linked, so that it starts on a machine without them. Stagecoach uses neither.

#include <cstdint>
#include <optional>
#include <string>

#include "core/kernels/settings.h"
#include "core/tensor.h"

namespace stagecoach {

/// Whether float32 factors keep their 23 bits of fraction, or go through tensor cores with 10 of them.
enum class Precision { fp32, tf32 };

/// The three products of a layer's training.
enum class Pass { forward, grad_input, grad_weight };

/// "cuBLAS 13.0.2, cuDNN 9.13.0", or which of them is not there.
std::string peers_description();

/// Seconds that cuBLAS takes for one pass of y = x weight^T; the pass's result is written. Nothing without cuBLAS.
/// Shapes as in Kernels::linear.
std::optional<double> cublas_linear_seconds(Pass pass, Precision precision, const Tensor& x, const Tensor& weight,
                                            const Tensor& y);

/// Seconds that cuDNN takes, with the fastest of its algorithms that 1 GiB of scratch memory allows. Nothing without
/// cuDNN. Shapes as in Kernels::conv2d, without bias.
std::optional<double> cudnn_conv2d_seconds(Pass pass, Precision precision, const Window& window, const Tensor& x,
                                           const Tensor& weight, const Tensor& y);

/// What the driver says about the first GPU.
struct GpuFacts {
  int multiprocessors = 0;
  double clock_hz = 0;  // the highest
  std::int64_t cache_bytes = 0;
  /// Multiply-adds in float32 that the whole GPU can do in a second, times two. 0 where we do not know its cores.
  double fp32_rate = 0;
};
GpuFacts gpu_facts();

}  // namespace stagecoach
