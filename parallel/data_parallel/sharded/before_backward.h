#pragma once
/// @file
/// A point of a graph at which something is done before the backward continues.

#include <functional>

#include "core/tensor.h"

namespace stagecoach {

/// Returns `y`. A backward that reaches it calls `call` first, when it has run all operations recorded later; if
/// nothing is recorded, or `y` needs no gradient, no backward does.
Tensor before_backward(const Tensor& y, std::function<void()> call);

}  // namespace stagecoach
