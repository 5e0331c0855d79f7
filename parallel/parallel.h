#pragma once
/// @file
/// The front door of the library: the wrappers that train a model of one's own on several ranks, and what a program
/// with ranks of its own needs. The chapters build the same from its parts, and say how each works.
///
/// | wrapper                   | called by                  | what each rank holds                                    |
/// |---------------------------|----------------------------|---------------------------------------------------------|
/// | `Pipe`                    | a program without ranks    | some layers; micro-batches pass from rank to rank       |
/// | `DataParallel`            | a program without ranks    | a copy of rank 0's weights, for one batch               |
/// | `DistributedDataParallel` | each rank, within launch() | all weights; gradients are summed during the backward   |
/// | `ShardedDataParallel`     | each rank, within launch() | a part of all weights, and some whole layers at a time  |
/// | `MeshPipe`                | each rank, within launch() | some layers, or slices of them, of one replica          |
///
/// They train, bit for bit, the weights of one device that accumulates the gradients of the same micro-batches.
/// docs/examples/own_model.cpp is a whole program, and own_loss.cpp beside it has a loss of its own. Checkpoints,
/// metrics and a progress bar are in parallel/training/run.h.
///
/// `chunks` of Pipe are micro-batches, as in the wrappers of other libraries. In chapter 5, and in `--chunks` of all
/// chapters, chunks are the stages per rank (virtual stages).

#include "parallel/launch/launch.h"
#include "parallel/wrappers/data_parallel.h"
#include "parallel/wrappers/distributed_data_parallel.h"
#include "parallel/wrappers/mesh_pipe.h"
#include "parallel/wrappers/pipe.h"
#include "parallel/wrappers/sharded_data_parallel.h"
