#pragma once
/// @file
/// Common helpers of the operations, and the headers that all of them include: nodes, kernels, checks and spans.

#include <memory>

#include "core/autograd/node.h"
#include "core/base/error.h"
#include "core/kernels/kernels.h"
#include "core/trace.h"

namespace stagecoach {

/// Returns an uninitialised tensor of the given shape with the type and device of `x`.
inline Tensor empty_like(const Tensor& x, const Shape& shape) { return Tensor::empty(shape, x.dtype(), x.device()); }

/// Returns the elements of x […, C] as [rows, C], without history.
inline Tensor as_rows(const Tensor& x) {
  const std::int64_t rows = x.shape().product(0, x.dims() - 1);
  return x.alias({rows, x.size(-1)}, x.offset());
}

/// Returns the labels [N, …] as [rows], one for each row of logits [N, …, C]. Throws Error if they do not match.
inline Tensor labels_of_rows(const char* operation, const Tensor& logits, const Tensor& labels) {
  const bool has_classes = logits.dims() == labels.dims() + 1 && labels.dims() >= 1 && logits.size(-1) > 0;
  STAGECOACH_CHECK(has_classes && Shape(logits.shape().begin(), labels.dims()) == labels.shape() &&
                       labels.dtype() == DType::int32 && labels.device() == logits.device(),
                   "{}: expected logits [N, …, C], and labels int32[N, …] on their device, got {} and {}", operation,
                   describe(logits), describe(labels));
  return labels.alias({labels.numel()}, labels.offset());
}

/// Returns the number of labels of each sample, of [N, …].
inline std::int64_t labels_per_sample(const Tensor& labels) { return labels.shape().product(1, labels.dims()); }

/// Returns the elements of x […, R, C] as [B, R, C], without history.
inline Tensor as_matrices(const Tensor& x) {
  return x.alias({x.shape().product(0, x.dims() - 2), x.size(-2), x.size(-1)}, x.offset());
}

/// Throws Error unless `other` has the type and device of `x`, or is undefined.
inline void check_matches(const char* operation, const Tensor& x, const Tensor& other) {
  STAGECOACH_CHECK(
      !other.defined() || (other.dtype() == x.dtype() && other.device() == x.device()),
      "{}: expected tensors of the same type and device, got {} and {}; to(device) copies a tensor to a device",
      operation, describe(x), describe(other));
}

}  // namespace stagecoach
