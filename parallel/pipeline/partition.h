#pragma once
/// @file
/// How many ranks each stage of a pipeline gets, and which layers, so that micro-batches follow each other fastest.

#include <vector>

#include "parallel/comm/link.h"
#include "parallel/pipeline/layer_profile.h"
#include "parallel/pipeline/split.h"

namespace stagecoach {

/// What a layer costs one micro-batch.
struct LayerCost {
  double seconds = 0;       ///< its forward and backward
  double output_bytes = 0;  ///< what it hands to the next layer, and gets a gradient for
  double weight_bytes = 0;  ///< of its parameters, whose gradients its replicas average
};

/// Layers per stage, and ranks per stage.
struct Partition {
  Split split;
  std::vector<int> replicas;
  double seconds = 0;  ///< between two micro-batches in the steady state: the slowest part
};

std::vector<LayerCost> layer_costs(const std::vector<LayerProfile>& profile);

/// Seconds between two micro-batches in the steady state, which are those of the slowest stage or message:
/// - A stage of n replicas takes (the sum of its layers' seconds + ring_all_reduce_seconds of its weights) / n. Each of
///   them takes every n-th micro-batch, and averages its gradients after it.
/// - A message between two stages takes twice what the link does: the activation there, and its gradient back.
///
/// Throws UsageError unless there are layers, whose costs are finite and not negative, every layer is in exactly one
/// stage, and every stage has a replica.
double slowest_part(const std::vector<LayerCost>& layers, const Split& split, const std::vector<int>& replicas,
                    const Link& link);

/// The partition over all of `ranks`, no fewer, whose slowest_part is the least. Among those that are equal except for
/// rounding: the one with the fewest stages, then with the longest last stage, then with the fewest replicas of it, and
/// so on towards the first. Takes O(layers^2 ranks^2).
///
/// The authors' code, optimizer_graph_hierarchical.py, charges 4 (n - 1) |w| / (B n) for averaging |w| bytes, as on a
/// link that carries one direction at a time; here it is what the ring of our communicator takes.
///
/// Throws UsageError for no layers, fewer than one rank, and costs that are negative or not finite.
/// Source: Narayanan et al., "PipeDream: generalized pipeline parallelism for DNN training", 2019, section 3.1, for one
/// level of links.
Partition partition(const std::vector<LayerCost>& layers, int ranks, const Link& link);

}  // namespace stagecoach
