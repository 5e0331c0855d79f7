#pragma once
/// @file
/// Batch norm over a batch whose samples are on several ranks. By default each rank normalises by its own samples only,
/// so training depends on the number of ranks; synchronised batch norm trains as one device would.
/// Source: Peng et al., "MegDet: A large mini-batch object detector", 2018, which calls it cross-GPU batch norm.

#include "nn/module.h"
#include "parallel/comm/communicator.h"

namespace stagecoach {

/// From now on every BatchNorm2d of `model` in training normalises by the whole batch over all ranks of `comm`, and
/// updates its running statistics from it, so they have the same bytes on all ranks. In evaluation, and in a group of
/// one rank, nothing changes. Parameter gradients are still sums over the rank's own samples.
///
/// All ranks must run the same layers equally often and in the same order, forward and backward; a rank without samples
/// does so with an empty batch. If a rank does not, the others wait until their deadline. `comm` must outlive the use
/// of the model and must not be used for anything else meanwhile: to reduce gradients on another thread, split off a
/// group first.
///
/// A layer of C channels costs two reductions in forward, of C + 1 and of C numbers, and one in backward, of 2 C
/// numbers, unless the layer's input needs no gradient. Each reduction waits for the slowest rank. The CPU waits for
/// the device in each, so a step on a GPU cannot be replayed (core/replay.h).
void synchronise_batch_norm(Module& model, Communicator& comm);

/// Returns the number of layers that synchronise_batch_norm would change.
int batch_norm_layers(const Module& model);

}  // namespace stagecoach
