#pragma once
/// @file
/// Lab 1, second part: gradient accumulation, where some samples have no label.

#include <vector>

#include "chapters/01_single_device/lab/samples.h"
#include "nn/module.h"

namespace stagecoach::lab {

/// Adds to the gradients of the model's parameters the gradient of a batch's loss, and returns that loss.
///
/// - The loss of the batch is the mean cross-entropy over all of its samples that have a label. Samples without one
///   (kNoLabel) do not count: not in the sum, and not in the number that it is divided by.
/// - The micro-batches may differ in size and in how many samples have a label; one may have none at all. If no
///   sample of the batch has a label, nothing is added and the loss is 0.
/// - The micro-batches run one after the other, each forward and backward before the next one begins: the graph of one
///   micro-batch only is alive at a time.
/// - Gradients that are there already stay: what this call computes is added to them. No optimizer's step.
double accumulate(Module& model, const std::vector<Samples>& microbatches);

}  // namespace stagecoach::lab
