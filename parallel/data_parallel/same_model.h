#pragma once
/// @file
/// Ensures that ranks that train the same model start with the same tensors and the same values.

#include <string>

#include "nn/module.h"
#include "parallel/comm/communicator.h"

namespace stagecoach {

/// Throws Error, naming the rank and the tensor, unless all ranks have tensors of the same names, shapes and types in
/// the same order. All ranks call it together.
void require_same_tensors(const NamedTensors& tensors, Communicator& comm);

/// Throws Error, naming the rank and the first line that differs, unless all ranks give the same text, whose lines say
/// what they train. All ranks call it together.
void require_same_lines(const std::string& lines, Communicator& comm);

/// Copies the values of rank 0 to all ranks.
void broadcast_tensors(const NamedTensors& tensors, Communicator& comm);

/// Does both for all parameters and buffers of `model`.
void broadcast_module(const Module& model, Communicator& comm);

/// Returns each tensor once, under its first name, as layers may share tensors.
NamedTensors without_repeats(const NamedTensors& tensors);

}  // namespace stagecoach
