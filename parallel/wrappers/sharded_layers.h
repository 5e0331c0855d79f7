#pragma once
/// @file
/// Sharded weights and optimizer states as whole layers, and back: what a checkpoint has does not depend on the number
/// of ranks, nor on what they shard.

#include <string>
#include <vector>

#include "nn/optimizer.h"
#include "parallel/data_parallel/sharded/sharded_units.h"
#include "parallel/pipeline/rank_role.h"

namespace stagecoach {

/// The layers of unit u are saved by rank u mod n of its group. So a rank has, in a save, the layers of every n-th unit
/// and one flat tensor of another unit, besides its shards.
class ShardedLayers final : public ShardedModel {
 public:
  /// `unit_layers` has the layers per unit. `units` and `groups` must outlive it.
  ShardedLayers(const Sequential& model, const std::vector<int>& unit_layers, const ShardedUnits& units,
                const ShardGroups& groups);

  /// Returns which rank of the group saves each layer.
  const LayerRanks& owners() const { return owners_; }

  WholeLayers whole_layers(const Optimizer& optimizer) const override;
  /// Copies their parts of parameters and buffers into the ranks' models; `mine` are those of the layers that this rank
  /// saves. All ranks call it together.
  void take_weights(const NamedTensors& mine, const std::string& what);
  void take_layers(const WholeLayers& mine, Optimizer& optimizer, const std::string& what) override;

 private:
  bool saves(const std::string& name) const { return is_of_rank(owners_, groups_.shards().rank(), name); }
  int owner_of(const FlatParameters& flat) const;
  void gather_flat(const FlatParameters& flat, const Optimizer& optimizer, WholeLayers& whole) const;
  void take_states(const FlatParameters& flat, const NamedTensors& mine, const Optimizer& optimizer,
                   const std::string& what);
  Tensor scattered(const FlatParameters& flat, const NamedTensors& mine, const std::string& suffix,
                   const std::string& what) const;
  std::vector<double> update_counts(const FlatParameters& flat, const NamedTensors& state) const;

  const ShardedUnits& units_;
  const ShardGroups& groups_;
  LayerRanks owners_;
};

}  // namespace stagecoach
