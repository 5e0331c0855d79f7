#pragma once
/// @file
/// Many tensors in one piece of memory: one message in place of many.

#include <vector>

#include "nn/named_tensors.h"

namespace stagecoach {

/// A copy of all elements, one tensor behind the other: [n]. They are of one type and on one device.
Tensor flattened(const std::vector<Tensor>& tensors);

/// Views of `flat` with the shapes of `like`, in their order.
std::vector<Tensor> views_of(const Tensor& flat, const std::vector<Tensor>& like);

/// Copies the elements of `flat`, which may lie on another device, into `tensors`.
void take_values(const Tensor& flat, const std::vector<Tensor>& tensors);

/// Without their names.
std::vector<Tensor> tensors_of(const NamedTensors& named);

}  // namespace stagecoach
