#pragma once
/// @file
/// The choices of sharded data parallelism.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "nn/tied_weights.h"
#include "parallel/data_parallel/compression.h"

namespace stagecoach {

/// What is cut over the ranks, so that each keeps one part of it, its shard. Source: Rajbhandari et al., "ZeRO: memory
/// optimizations toward training trillion parameter models", 2020, whose three stages these are.
enum class Sharded {
  optimizer,   ///< the optimizer's state
  gradients,   ///< and the gradients
  parameters,  ///< and the weights: fully sharded
};

/// What the backwards of a step before the last one add up.
enum class Accumulation {
  whole,    ///< whole gradients on each rank, which sends none before the step's last backward
  sharded,  ///< the sums over all ranks, so that no whole gradients stay; each backward sends as much as the last
};

struct ShardedSettings {
  Sharded shard = Sharded::parameters;
  bool reshard_after_forward = true;  ///< with Sharded::parameters: free weights after the forward too
  int prefetch = 1;                   ///< units that are gathered before the computation needs them
  Accumulation accumulation = Accumulation::whole;
  CompressionKind compress = CompressionKind::none;  ///< of the gradients that are sent
  int copies = 1;                     ///< of the weights: each is cut over as many consecutive ranks (hybrid sharding)
  std::vector<int> unit_layers = {};  ///< layers per unit; empty: each layer with parameters begins a unit
  std::uint64_t seed = 0;             ///< of the weights
  TiedWeights::Names tied = {};       ///< pairs of parameters that are the same: the first one and its copy
  /// Returns whether the parameter of this name is trained; others are frozen: they have no gradient and no state.
  std::function<bool(const std::string& name)> trains = [](const std::string&) { return true; };
};

}  // namespace stagecoach
