#pragma once
/// @file
/// Lab 2, second part: a batch through stages that may be on any rank.

#include <map>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/pipeline/stage.h"

namespace stagecoach::lab {

/// What one rank knows of a training step.
struct BatchStep {
  Communicator& comm;  ///< comm.rank() is this rank
  /// The rank of each stage. Neighbouring stages may be on any ranks, also on the same. A rank may hold several stages,
  /// next to each other or not: {1, 0}, {0, 0, 1}, {0, 1, 2, 0}.
  const std::vector<int>& stage_to_rank;
  std::map<int, Stage>& stages;  ///< the stages of this rank, by number
  /// What enters each stage: [N, …] for the batch of N samples.
  const std::vector<Shape>& entering;
  Tensor images;  ///< what enters stage 0, float32; undefined on ranks that do not hold stage 0
  Tensor labels;  ///< int32 [N]; undefined on ranks that do not hold the last stage
};

/// Runs the batch forward through all stages and its gradient back, as far as this rank takes part. Each of its stages
/// runs forward and then backward once, with micro-batch number 0.
///
/// - Afterwards the parameters of this rank's stages have the gradients of the mean loss over the N samples, and these
///   are bit for bit those of one device: the loss is summed, and the backward begins with 1 / N. This rank's tensors
///   are on comm.device(); create the 1 / N there.
/// - Each activation and each gradient crosses a border between two ranks once. Between stages of one rank nothing is
///   sent. The gradient of the images is not computed.
/// - No rank waits forever, whatever the placement. comm.send and comm.receive are enough.
/// - The optimizer's step is the caller's.
///
/// Returns the sum of the losses of all samples on the rank that holds the last stage, and 0 on the others.
double batch_step(const BatchStep& step);

}  // namespace stagecoach::lab
