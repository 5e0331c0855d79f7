#pragma once
/// @file
/// How ranks that train the same model begin: with the same parts, and the same values in them.

#include "nn/module.h"
#include "parallel/comm/communicator.h"

namespace stagecoach {

/// Throws Error unless all ranks have tensors of the same names, shapes and types in the same order; it names the rank
/// and the tensor. All ranks call it together.
void require_same_tensors(const NamedTensors& tensors, Communicator& comm);

/// Gives all ranks the values of rank 0.
void broadcast_tensors(const NamedTensors& tensors, Communicator& comm);

/// Both, for all parameters and buffers of `model`.
void broadcast_module(const Module& model, Communicator& comm);

/// Each tensor once, under its first name, where layers share some.
NamedTensors without_repeats(const NamedTensors& tensors);

}  // namespace stagecoach
