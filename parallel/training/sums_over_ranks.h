#pragma once
/// @file
/// The gradient norm of a model that is spread over ranks.

#include "nn/clip_grad_norm.h"
#include "nn/module.h"
#include "parallel/training/training_state.h"

namespace stagecoach {

/// Returns what sums the squares of the gradients of all ranks, each parameter's once and in the order of the whole
/// model, so that the norm has the bits of one device. Empty if each rank that updates weights has the whole model.
/// Slices of a gradient are joined first: the blocks of its sum are those of the whole parameter, and cross slices.
/// `model` and `optimizer`, whose parameters count, are the rank's own. All ranks call this function together, and then
/// its result for each update.
SumsOfSquares sums_over_ranks(Communicator& comm, const RankRole& role, const Module& model,
                              const Optimizer& optimizer);

/// Returns what one rank contributes: the sums of squares of its `gradients`; with a tensor group, those of whole
/// gradients on rank 0 of the group, and zeros on the others. The group holds one whole gradient at a time.
std::vector<double> sums_of_rank(const NamedTensors& gradients, const NamedSlices& slices, Communicator* tensor_group);

}  // namespace stagecoach
