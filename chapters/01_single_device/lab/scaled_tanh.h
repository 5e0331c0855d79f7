#pragma once
/// @file
/// Lab 1, first part: an operation with a gradient.

#include "core/tensor.h"

namespace stagecoach::lab {

/// Returns y [N, C] with y[n, c] = scale[c] * tanh(x[n, c]): x [N, C], scale [C], both float64 and on a CPU.
///
/// - If gradients are enabled and x or scale needs one (should_record), it records a node called "scaled_tanh" with the
///   inputs x and scale, in this order. Otherwise it records nothing.
/// - The node's backward returns two gradients, each in the shape of its input, and computes only those that
///   needs_input_grad asks for; the other stays undefined. It does not write to the gradient that it is given.
/// - What the backward needs is kept with Node::save, scale itself among it, so that a tensor that is written to in
///   between is refused. It keeps no copies of x or scale.
Tensor scaled_tanh(const Tensor& x, const Tensor& scale);

}  // namespace stagecoach::lab
