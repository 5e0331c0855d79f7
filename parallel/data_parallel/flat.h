#pragma once
/// @file
/// Flat buffers: many tensors in one piece of memory, sent as one message.

#include <vector>

#include "nn/named_tensors.h"

namespace stagecoach {

/// Returns an uninitialised tensor [n] with room for the elements of all `tensors`, which have one dtype and are on one
/// device.
Tensor flat_for(const std::vector<Tensor>& tensors);

/// Returns such a tensor with a copy of the elements, one tensor after the other.
Tensor flattened(const std::vector<Tensor>& tensors);

/// Returns views of `flat` with the shapes of `like`, in order.
std::vector<Tensor> views_of(const Tensor& flat, const std::vector<Tensor>& like);

/// Returns a copy of `flat` [n], with zeros at the end so that it can be cut into `parts` of equal length.
Tensor padded(const Tensor& flat, int parts);

/// Copies the elements of `flat`, which may be on another device, into `tensors`.
void unflatten_into(const Tensor& flat, const std::vector<Tensor>& tensors);

// Return the tensors without their names, their gradients, and the bytes of either.
std::vector<Tensor> tensors_of(const NamedTensors& named);
std::vector<Tensor> gradients_of(const NamedTensors& parameters);
double bytes_of(const NamedTensors& named);

}  // namespace stagecoach
