#pragma once
/// @file
/// What a call of a kernel costs: a table with the rows and parameters of `Kernels`, one group per file in
/// core/kernels/costs. A row reads shapes, types and settings, never elements, so it needs no memory behind its tensors
/// and answers the same on every machine.
///
/// **Operations** are those of the formula in kernels.h, in floating point. An addition, subtraction, multiplication,
/// division or comparison counts as 1, and so does a call of exp, log, sqrt, tanh or erf; a multiply-add is 2.
/// Intermediate results count once; a sum of n terms has n additions, since it starts at 0. Not counted are integers,
/// conversions, signs, and what settings alone determine. The taps over a window's padding are counted, as is usual. A
/// kernel may compute more, for example once again what it would otherwise have to load.
///
/// **Bytes** are the least that can move between memory and processor: each input is read once, each output is written
/// once, and what is updated in place both. Anything less would mean that a tensor stays in a cache between two calls.

#include <cstdint>

#include "core/device.h"
#include "core/dtype.h"
#include "core/kernels/kernels.h"

namespace stagecoach {

/// Kernels of one kind use a processor about equally well.
enum class CostKind {
  matrix_product,
  convolution,
  wide_convolution,  ///< of 64 channels and more: a kernel of its own on the CPU (wide_conv2d.h), not on a GPU
  attention,
  elementwise,  ///< each result depends on one element per input, or on a few
  reduction,    ///< results depend on many elements, such as a row or a channel
  copy,         ///< nothing is computed
};
/// Returns whether the operations of a kind are mostly those of matrix products.
constexpr bool is_product(CostKind kind) { return kind < CostKind::elementwise; }

/// What depends on the kernels that a backend has.
struct BackendCost {
  int launches = 1;                  ///< kernels that a GPU is given; a call on the CPU is one launch
  std::int64_t workspace_bytes = 0;  ///< the most working memory that the call holds at a time
  /// Of products and convolutions: the operations for which tiles and vectors have room that the shapes do not fill. A
  /// layer with 6 outputs takes a tile with 16 rows as long as one with 16.
  std::int64_t idle_flops = 0;
};

struct KernelCost {
  CostKind kind;
  DType dtype;                     ///< of the operations, or of the elements that are copied
  std::int64_t flops = 0;          ///< floating-point operations
  std::int64_t bytes_read = 0;     ///< at least
  std::int64_t bytes_written = 0;  ///< at least
  BackendCost cpu = {};            ///< with one thread and vectors of 32 bytes (AVX2)
  BackendCost cuda = {};           ///< without TF32, for tensors that have elements

  std::int64_t bytes() const { return bytes_read + bytes_written; }
  const BackendCost& on(DeviceType device) const { return device == DeviceType::cuda ? cuda : cpu; }
};

using KernelCosts = KernelTable<KernelCost>;

/// Returns the costs of all kernels.
const KernelCosts& kernel_costs();

}  // namespace stagecoach
