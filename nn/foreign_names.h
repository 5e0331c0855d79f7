#pragma once
/// @file
/// The names of weights in PyTorch: those of torchvision for the residual networks, of timm for vit, and of nanoGPT for
/// gpt. docs/reference/names.md has the whole mapping. Most of our names are theirs.

#include <set>
#include <string>

#include "nn/named_tensors.h"

namespace stagecoach {

/// Returns that of the names `ours` which a tensor has that PyTorch calls `given`; `given` if it has none of them.
std::string our_name(const std::string& given, const std::set<std::string>& ours);

/// Returns `tensors` under the names and in the shapes of `ours` where they have those of PyTorch, without what these
/// models do not have (counters of batch norm, stored masks). Other tensors stay as they are.
NamedTensors with_our_names(const NamedTensors& tensors, const NamedTensors& ours);

/// Returns `ours` under the names and in the shapes of PyTorch.
NamedTensors with_pytorch_names(const NamedTensors& ours);

}  // namespace stagecoach
