#pragma once
/// @file
/// Named tensors: the parameters of a model, the state of an optimizer, the contents of a file.

#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace stagecoach {

/// Tensors with unique names, in a fixed order. The tensors are handles, not copies.
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

/// Returns the tensor of that name; undefined if there is none.
Tensor find_tensor(const NamedTensors& tensors, const std::string& name);

/// Throws DataError unless the tensors have the same names, shapes and types, in any order. Its text begins with `what`
/// and lists each mismatch.
void require_matching(const NamedTensors& from, const NamedTensors& into, const std::string& what);

/// Copies each tensor of `from` into the tensor of the same name in `into`; orders and devices may differ. If they do
/// not match, copies nothing and throws as require_matching() does.
void copy_by_name(const NamedTensors& from, const NamedTensors& into, const std::string& what);

/// Returns the tensors whose names begin with `prefix`, with the prefix removed.
NamedTensors below(const std::string& prefix, const NamedTensors& tensors);

}  // namespace stagecoach
