#pragma once
/// @file
/// The weights of a model on disk: its parameters, then its buffers, under their full names.

#include <string>

#include "nn/module.h"

namespace stagecoach {

/// The weights of a module: handles on its parameters, then on its buffers.
NamedTensors weights_of(const Module& module);

/// Writes the weights as a safetensors file; equal weights give equal bytes. Throws DataError.
void save_weights(const std::string& path, const Module& module);

/// Reads them into a module that has memory. Throws DataError that lists every name that is missing, extra, or of
/// another shape or type; then nothing was changed.
void load_weights(const std::string& path, Module& module);

}  // namespace stagecoach
