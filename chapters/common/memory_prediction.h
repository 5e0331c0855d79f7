#pragma once
/// @file
/// How much memory each rank should take while it trains, before anything was allocated.

#include <cstdint>
#include <vector>

#include "chapters/common/plan.h"

namespace stagecoach {

/// The most bytes that a rank holds on its device.
struct RankMemory {
  double weights = 0;
  double gradients = 0;    ///< of its weights: those that are summed, and those that wait for their turn
  double optimizer = 0;    ///< its state: sgd's velocity, adam's two moments
  double activations = 0;  ///< of all micro-batches in flight, with the graph of one that is recomputed
  double received = 0;     ///< what entered its stages from other ranks, as copies, and the room of posted receives
  double workspace = 0;    ///< of the operations, and gradients on their way through the layers

  double total() const { return weights + gradients + optimizer + activations + received + workspace; }
};

/// Of each rank of a plan whose layers were measured, with micro-batches of `microbatch` images.
std::vector<RankMemory> predict_memory(const TrainingSettings& training, const PipelineSettings& pipeline,
                                       const Plan& plan, std::int64_t microbatch);

/// Its parts that do not depend on the kind of schedule: the state that the optimizer keeps per byte of weights, and
/// what enters each stage from another rank with one micro-batch, in bytes.
double optimizer_bytes_per_weight_byte(const TrainingSettings& training);
std::vector<double> received_bytes(const Plan& plan, std::int64_t microbatch);

/// Prints one line per rank: its total as a process of its own, and what that consists of.
void print_predicted_memory(const std::vector<RankMemory>& ranks);

}  // namespace stagecoach
