#pragma once
/// @file
/// The weights of a model on disk: its parameters, then its buffers, under their full names.

#include <string>

#include "nn/module.h"

namespace stagecoach {

/// Returns the weights of a module: handles on its parameters, then on its buffers.
NamedTensors weights_of(const Module& module);

/// Writes the weights as a safetensors file; equal weights give equal bytes. Throws DataError.
void save_weights(const std::string& path, const Module& module);

/// Reads the weights into a module that has memory; those in half precision (F16, BF16) are widened. If a name is
/// missing or extra, or a shape or type differs, changes nothing and throws DataError that lists each mismatch.
void load_weights(const std::string& path, Module& module);

}  // namespace stagecoach
