#pragma once
/// @file
/// What the rows of several groups share.

#include <cstdint>

#include "core/kernels/costs.h"

namespace stagecoach::costs {

/// Returns the bytes of all defined tensors.
template <class... Tensors>
std::int64_t bytes_of(const Tensors&... tensors) {
  return (std::int64_t{0} + ... + (tensors.defined() ? static_cast<std::int64_t>(tensors.bytes()) : 0));
}

/// Returns the bytes of `count` elements.
inline std::int64_t element_bytes(std::int64_t count, DType dtype) {
  return count * static_cast<std::int64_t>(size_of(dtype));
}

/// Returns the cost of a call that computes `out` from `inputs`, with `flops` operations per element of `out`.
template <class... Inputs>
KernelCost elementwise(std::int64_t flops, const Tensor& out, const Inputs&... inputs) {
  return {.kind = flops == 0 ? CostKind::copy : CostKind::elementwise,
          .dtype = out.dtype(),
          .flops = flops * out.numel(),
          .bytes_read = bytes_of(inputs...),
          .bytes_written = bytes_of(out)};
}

/// Returns the cost of a call that computes `out` from `inputs`, with `flops` operations in all.
template <class... Inputs>
KernelCost reduction(std::int64_t flops, const Tensor& out, const Inputs&... inputs) {
  return {.kind = CostKind::reduction,
          .dtype = out.dtype(),
          .flops = flops,
          .bytes_read = bytes_of(inputs...),
          .bytes_written = bytes_of(out)};
}

/// Returns how the GPU multiplies matrices [m, k] and [k, n] (core/kernels/cuda/matrix_product.cuh). A result with
/// `more_columns` is divided as one without.
BackendCost cuda_product(std::int64_t m, std::int64_t n, std::int64_t k, DType dtype, int more_columns = 0);

/// The vectors of the CPU for which costs state the workspace.
struct CpuVectors {
  explicit CpuVectors(DType dtype) : lanes(32 / static_cast<std::int64_t>(size_of(dtype))) {}
  std::int64_t lanes;  ///< elements of a vector
  /// Returns `count` rounded up to whole vectors.
  std::int64_t padded(std::int64_t count) const { return (count + lanes - 1) / lanes * lanes; }
  /// Returns the operations with which the lanes of `count` elements in whole vectors are idle, if `flops` are for all
  /// of the elements.
  std::int64_t idle_flops(std::int64_t flops, std::int64_t count) const {
    return count == 0 ? 0 : flops / count * (padded(count) - count);
  }
  /// Returns the workspace of `product` (core/kernels/cpu/matrix_product.h), in elements: the columns after the last
  /// whole vector of [k, width] and [rows, width].
  std::int64_t product_tail(std::int64_t rows, std::int64_t k, std::int64_t width) const {
    return width % lanes == 0 ? 0 : (k + rows) * lanes;
  }
};

}  // namespace stagecoach::costs
