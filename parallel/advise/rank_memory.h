#pragma once
/// @file
/// The memory that each rank of a candidate needs, and what it is for.

#include <vector>

#include "parallel/advise/candidate.h"
#include "parallel/schedule/schedule.h"

namespace stagecoach {

/// What a rank holds at the moment when it holds most, in bytes.
struct RankMemory {
  double weights = 0;
  double gradients = 0;    ///< of its weights, buckets included, and ones that wait to be added
  double optimizer = 0;    ///< the optimizer's state
  double activations = 0;  ///< of all micro-batches in flight, with what it received for them
  double messages = 0;     ///< buffers of posted receives
  double workspace = 0;    ///< of the operations, and the layers that a backward computes again

  double total() const { return weights + gradients + optimizer + activations + messages + workspace; }
};

/// Returns the memory of each rank of `schedule`, which is lowered. `message_bytes`: see link_traffic(). Ranks that
/// share batches hold the gradients of all their weights in buckets, all the time.
std::vector<RankMemory> memory_of_ranks(const ModelCosts& costs, const Candidate& candidate, const Split& split,
                                        const Schedule& schedule, const std::vector<double>& message_bytes,
                                        double optimizer_bytes_per_weight_byte);

/// Returns the least bytes that the rank with most of them holds before an update: weights, gradients and the
/// optimizer's state, divided equally among the ranks of a pipeline.
double least_bytes(const ModelCosts& costs, const Candidate& candidate, double optimizer_bytes_per_weight_byte);

}  // namespace stagecoach
