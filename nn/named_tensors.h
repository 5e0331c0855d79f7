#pragma once
/// @file
/// Tensors under names: the parameters of a model, the state of an optimizer, the contents of a file.

#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace stagecoach {

/// In a fixed order, each name once. The tensors are handles, not copies.
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

/// Copies each tensor of `from` into the one of the same name in `into`, whatever the two orders and devices.
/// Throws DataError, which begins with `what` and lists every name that is missing, extra, or of another shape
/// or type; then nothing was copied.
void copy_by_name(const NamedTensors& from, const NamedTensors& into, const std::string& what);

/// Those whose names begin with `prefix`, under what follows it.
NamedTensors below(const std::string& prefix, const NamedTensors& tensors);

}  // namespace stagecoach
