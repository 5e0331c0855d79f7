#pragma once
/// @file
/// Batch norm over a batch whose samples lie on several ranks. By itself each rank normalises by the samples that it
/// has, so a network learns something else on more ranks; synchronised, it learns what one device would.
/// Source: Peng et al., "MegDet: A large mini-batch object detector", 2018, which calls it cross-GPU batch norm.

#include "nn/module.h"
#include "parallel/comm/communicator.h"

namespace stagecoach {

/// From now on every BatchNorm2d of `model` in training normalises by the whole batch over all ranks of `comm`, and
/// moves its running statistics by it: they have the same bytes on all ranks. In evaluation, and in a group of one
/// rank, nothing changes. Returns how many layers that are. Parameter gradients are still sums over the rank's own
/// samples.
///
/// All ranks must run the same layers equally often and in the same order, forward and backward, a rank without samples
/// with an empty batch. A rank that does not makes the others wait until their deadline. `comm` must outlive the use of
/// the model, and carry nothing else meanwhile: whoever reduces gradients on another thread splits off a group first.
///
/// Costs a layer of C channels, each time with a wait for the slowest rank: two reductions in forward, of C + 1 and of
/// C numbers, and one in backward, of 2 C numbers, unless the layer's input needs no gradient. The processor waits for
/// the device in each, so a step on a GPU cannot be replayed (core/replay.h).
int synchronise_batch_norm(Module& model, Communicator& comm);

/// How many layers that would be.
int batch_norm_layers(const Module& model);

}  // namespace stagecoach
