#pragma once
/// @file
/// Lab 9, part 3: when units are gathered, freed and reduced during a step.

#include <cstddef>
#include <vector>

#include "chapters/09_sharded_data_parallel/lab/unit.h"

namespace stagecoach::lab {

/// One rank's side of a model. There is at least one unit.
struct ShardedModel {
  std::vector<Unit> units;
  int prefetch = 1;  ///< how many units are gathered ahead of the one that computes

  bool has(int u) const { return u >= 0 && u < static_cast<int>(units.size()); }
  Unit& unit(int u) { return units[static_cast<std::size_t>(u)]; }
};

// For each micro-batch of a step, all ranks call forward(), then the backward of a loss of its output, whose marks call
// reach(), and then reach(model, -1, comm). Between steps the optimizer changes the shards.

/// Returns the model's output for x: the units' layers, one unit after another.
///
/// - Before unit u computes, it and the `prefetch` units after it are gathered, in this order, as far as there are any.
/// - After it, its weights are freed. Only the last unit keeps them, as the backward needs them first.
/// - Its output gets a mark that calls reach(model, u, comm). `model` and `comm` outlive the graph.
Tensor forward(ShardedModel& model, const Tensor& x, Communicator& comm);

/// The backward of the units after u is done, and that of unit u begins; u = -1 is the end of the backward. In this
/// order, for units that there are:
///
/// - The weights of unit u + 1 are freed.
/// - Unit u and the `prefetch` units before it are gathered, in this order. The backward waits for them, and for no
/// sum.
/// - The gradients of unit u + 1 are reduced.
void reach(ShardedModel& model, int u, Communicator& comm);

}  // namespace stagecoach::lab
