#pragma once
/// @file
/// Adds a bias apart from its layer: the sum of what several ranks or slices have computed gets it once.

#include "core/ops.h"

namespace stagecoach {

/// Returns x + b for every row of x […, C]: b [C].
inline Tensor add_to_rows(const Tensor& x, const Tensor& b) {
  return add_broadcast(x.reshape({-1, x.size(-1)}), b).reshape(x.shape());
}

/// Returns x + b for every plane of x [N, C, H, W]: b [C].
inline Tensor add_to_channels(const Tensor& x, const Tensor& b) {
  const std::int64_t channels = x.size(1);
  const std::int64_t plane = x.size(2) * x.size(3);
  const Tensor ones = Tensor::full({1, plane}, 1, x.dtype(), x.device());
  return add_broadcast(x, matmul(b.reshape({channels, 1}), ones).reshape({channels, x.size(2), x.size(3)}));
}

}  // namespace stagecoach
