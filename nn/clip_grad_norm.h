#pragma once
/// @file
/// Clipping of gradients by their global norm. Source: Pascanu, Mikolov and Bengio, "On the difficulty of training
/// recurrent neural networks", 2013, algorithm 1.
///
/// The norm has the same bits however a model is split: the squares of each gradient are added in float64 in an order
/// that depends on its own elements only (Kernels::sums_of_squares), and these sums in the order of the parameters.

#include <functional>
#include <vector>

#include "nn/named_tensors.h"

namespace stagecoach {

/// Returns the sum of the squares of each gradient of the model, in the order of its parameters, given this rank's own
/// (undefined for a parameter without one).
using SumsOfSquares = std::function<std::vector<double>(const NamedTensors& gradients)>;

/// Returns these sums for a model that is on this rank alone; 0 for an undefined gradient. Waits for the devices.
std::vector<double> sums_of_squares(const NamedTensors& gradients);

/// Multiplies all gradients by min(1, max_norm / (norm + 1e-6)), as PyTorch's clip_grad_norm_ does. The parameters may
/// be on several devices. Without `sums` the model is on this rank alone, and one device is not waited for.
void clip_grad_norm(const NamedTensors& parameters, double max_norm, const SumsOfSquares& sums = {});

}  // namespace stagecoach
