#pragma once
/// @file
/// Many tensors in one piece of memory: one message in place of many.

#include <vector>

#include "nn/named_tensors.h"

namespace stagecoach {

/// Memory for the elements of all `tensors`, which are of one type and on one device: [n], unset.
Tensor flat_for(const std::vector<Tensor>& tensors);

/// The same with a copy of them, one tensor after the other.
Tensor flattened(const std::vector<Tensor>& tensors);

/// Views of `flat` with the shapes of `like`, in their order.
std::vector<Tensor> views_of(const Tensor& flat, const std::vector<Tensor>& like);

/// Copies the elements of `flat`, which may lie on another device, into `tensors`.
void take_values(const Tensor& flat, const std::vector<Tensor>& tensors);

// Without their names: the tensors, their gradients, and the bytes that each of the two have.
std::vector<Tensor> tensors_of(const NamedTensors& named);
std::vector<Tensor> gradients_of(const NamedTensors& parameters);
double bytes_of(const NamedTensors& named);

}  // namespace stagecoach
