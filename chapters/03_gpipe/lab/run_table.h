#pragma once
/// @file
/// Lab 3, second part: the loop that runs a table.

#include <cstdint>
#include <map>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/pipeline/stage.h"
#include "parallel/schedule/schedule.h"

namespace stagecoach::lab {

/// What one rank knows of a training step.
struct TableStep {
  Communicator& comm;            ///< comm.rank() is this rank
  const Schedule& schedule;      ///< computations only: F and B. A legal table, not always that of the first part
  std::map<int, Stage>& stages;  ///< the stages of this rank, by number
  /// What enters each stage of the whole pipeline, for one sample: [1, …]. With n samples it is entering[s].with(0, n).
  const std::vector<Shape>& entering;
  const std::vector<std::int64_t>& sizes;  ///< samples of each micro-batch; they may differ
  /// The inputs of stage 0, float32 [n, …] for each micro-batch. Empty on ranks that do not hold stage 0.
  const std::vector<Tensor>& images;
  /// The labels, int32 [n] for each micro-batch. Empty on ranks that do not hold the last stage.
  const std::vector<Tensor>& labels;
};

/// Runs this rank's line of the table, schedule.ranks[comm.rank()], action by action: receives what an action needs
/// from another rank, computes it with this rank's Stage, and sends the result to the rank that needs it.
///
/// - The loss of a step is the mean over all samples of all micro-batches. The gradients are bit for bit those of one
///   device: they add up in the order of the micro-batches, whatever the order of the backwards
///   (Stage::add_gradients_in_order), and each micro-batch's loss is summed and begins its backward with 1 / N, where N
///   is the number of samples of all micro-batches. This rank's tensors are on comm.device(); create the 1 / N there.
/// - The table lists no messages: what must be sent follows from schedule.rank_of(stage, microbatch). Between stages of
///   the same rank nothing is sent.
/// - A send must not keep the rank from its next action: a table may have two ranks send to each other. Before the
///   function returns, all sends have been waited for.
/// - Each message has a tag of its own, as two ranks may take the micro-batches in different orders.
/// - The optimizer's step is the caller's. (Nobody needs the gradient of the images; to compute it costs time, no
/// points.)
///
/// Returns the sum of the losses of all samples on the rank that holds the last stage, and 0 on the others.
double run_table(const TableStep& step);

}  // namespace stagecoach::lab
