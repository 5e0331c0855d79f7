#pragma once
/// @file
/// Chooses how many ranks and which layers each stage of a pipeline gets, so that the throughput is highest.

#include <vector>

#include "parallel/comm/link.h"
#include "parallel/pipeline/layer_profile.h"
#include "parallel/pipeline/split.h"

namespace stagecoach {

/// The cost of a layer per micro-batch.
struct LayerCost {
  double seconds = 0;       ///< its forward and backward, with what recomputation adds
  double output_bytes = 0;  ///< what it passes to the next layer, and gets a gradient for
  double weight_bytes = 0;  ///< of its parameters, whose gradients its replicas average
};

/// Layers per stage, and ranks per stage.
struct Partition {
  Split split;
  std::vector<int> replicas;
  double seconds = 0;  ///< between two micro-batches in the steady state: the slowest part
};

/// Returns the costs of measured layers.
std::vector<LayerCost> layer_costs(const std::vector<LayerProfile>& profile, Stage::Recompute recompute);

/// Returns the seconds between two micro-batches in the steady state: the time of the slowest stage or message.
/// - A stage of n replicas takes (the sum of its layers' seconds + ring_all_reduce_seconds of its weights) / n. Each
///   replica takes every n-th micro-batch and averages its gradients after it.
/// - A message between two stages takes the link's time twice: for the activation, and for its gradient on the way
///   back.
///
/// Throws UsageError unless there is at least one layer, all costs are finite and not negative, every layer is in
/// exactly one stage, and every stage has a replica.
double slowest_part(const std::vector<LayerCost>& layers, const Split& split, const std::vector<int>& replicas,
                    const Link& link);

/// Returns the partition over exactly `ranks` ranks whose slowest_part is smallest. Ties (up to rounding) are broken
/// by the fewest stages, then the longest last stage, then its fewest replicas, and so on towards the first stage.
/// Takes O(layers^2 ranks^2).
///
/// The authors' code, optimizer_graph_hierarchical.py, charges 4 (n - 1) |w| / (B n) for averaging |w| bytes, as on a
/// link that carries one direction at a time; here the charge is the time of our communicator's ring all-reduce.
///
/// Throws UsageError for no layers, fewer than one rank, and costs that are negative or not finite.
/// Source: Narayanan et al., "PipeDream: generalized pipeline parallelism for DNN training", 2019, section 3.1, for a
/// single level of links.
Partition partition(const std::vector<LayerCost>& layers, int ranks, const Link& link);

}  // namespace stagecoach
