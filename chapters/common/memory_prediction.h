#pragma once
/// @file
/// A prediction of how much memory each rank needs while it trains, made before anything is allocated.

#include <cstdint>
#include <vector>

#include "chapters/common/plan.h"

namespace stagecoach {

/// The most bytes that a rank holds on its device.
struct RankMemory {
  double weights = 0;
  double gradients = 0;    ///< of its weights: accumulated ones, and ones that wait to be accumulated
  double optimizer = 0;    ///< the optimizer's state: sgd's velocity, adam's two moments
  double activations = 0;  ///< of all micro-batches in flight, and the graph of a recomputed one
  double received = 0;     ///< copies of what other ranks sent to its stages, and the buffers of posted receives
  double workspace = 0;    ///< of the operations, and the gradients of activations during a backward

  double total() const { return weights + gradients + optimizer + activations + received + workspace; }
};

/// Returns the memory of each rank. The plan's layers must have been measured, with micro-batches of `microbatch`
/// images.
std::vector<RankMemory> predict_memory(const TrainingSettings& training, const PipelineSettings& pipeline,
                                       const Plan& plan, std::int64_t microbatch);

// The parts of predict_memory that do not depend on the kind of schedule.
/// Returns the bytes of state that the optimizer keeps per byte of weights.
double optimizer_bytes_per_weight_byte(const TrainingSettings& training);
/// Returns the bytes that one micro-batch of `microbatch` images in flight takes in each stage (see bytes_of_stages).
std::vector<double> kept_bytes(const PipelineSettings& pipeline, const Plan& plan, std::int64_t microbatch);
/// Returns the bytes of the graph that --recompute builds again for a backward of each stage; without it zeros.
std::vector<double> rebuilt_bytes(const PipelineSettings& pipeline, const Plan& plan);
/// Returns the bytes that each stage receives from another rank for one micro-batch.
std::vector<double> received_bytes(const Plan& plan, std::int64_t microbatch);

/// Prints one line per rank: the total for a rank in its own process, and its parts.
void print_predicted_memory(const std::vector<RankMemory>& ranks);

}  // namespace stagecoach
