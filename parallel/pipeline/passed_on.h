#pragma once
/// @file
/// The check of what one stage passes on to the next one, which receives a tensor of a shape that was computed before.

#include "nn/sequential.h"

namespace stagecoach {

/// Throws Error unless `output`, made by the layers of stage `stage` from `x`, is of shape `expected` and type `type`.
/// If a layer's output_shape is wrong, names the layer, for which it runs the layers once more.
void require_passed_on(int stage, Sequential& layers, const Tensor& x, const Tensor& output, const Shape& expected,
                       DType type);

}  // namespace stagecoach
