#pragma once
/// @file
/// From the slices of a tensor-parallel group to whole tensors under one device's names, and back: so files do not
/// depend on how a model was cut.

#include "nn/named_tensors.h"
#include "nn/tensor_slice.h"
#include "parallel/comm/communicator.h"

namespace stagecoach {

/// Returns `tensors` on rank 0 of `comm`, with whole tensors in place of slices, and nothing on the other ranks. A
/// tensor named "X" or "X.…" that has the shape of the slice of X is such a slice (an optimizer's state has the shape
/// of its parameter). All ranks call it together, with the same names.
NamedTensors join_slices(const NamedTensors& tensors, const NamedSlices& slices, Communicator& comm);

/// Returns `whole` with this rank's slices in place of whole tensors; the reverse.
NamedTensors cut_slices(const NamedTensors& whole, const NamedSlices& slices);

}  // namespace stagecoach
