#pragma once
/// @file
/// Sharded weights and optimizer states as whole layers, and back: what a checkpoint has does not depend on the number
/// of ranks, nor on what they shard.

#include <memory>
#include <vector>

#include "nn/optimizer.h"
#include "parallel/data_parallel/sharded/sharded_unit.h"
#include "parallel/pipeline/rank_role.h"

namespace stagecoach {

/// Unit u is saved by rank u mod n of its group. So a rank has, in a save, the layers of every n-th unit and one flat
/// tensor of another unit, besides its shards.
class ShardedLayers final : public ShardedModel {
 public:
  using Units = std::vector<std::unique_ptr<ShardedUnit>>;
  /// `units` and `groups` must outlive it.
  ShardedLayers(const Units& units, const ShardGroups& groups) : units_(units), groups_(groups) {}

  /// Returns which rank saves each of `layers`, which have names of `model`. `unit_layers` has the layers per unit.
  LayerRanks owners(const Sequential& model, const std::vector<int>& unit_layers) const;

  WholeLayers whole_layers(const Optimizer& optimizer) const override;
  /// Copies their parts of parameters and buffers into the ranks' models; `mine` are those of the layers that this rank
  /// saves. All ranks call it together.
  void take_weights(const NamedTensors& mine, const std::string& what);
  void take_layers(const WholeLayers& mine, Optimizer& optimizer, const std::string& what) override;

 private:
  int owner_of(std::size_t unit) const { return static_cast<int>(unit) % groups_.shards().size(); }
  void gather_unit(std::size_t u, const Optimizer& optimizer, WholeLayers& whole) const;
  void take_states(std::size_t u, const NamedTensors& mine, const Optimizer& optimizer, const std::string& what);
  Tensor scattered(std::size_t u, const NamedTensors& mine, const std::string& suffix, const std::string& what) const;
  std::vector<double> update_counts(const ShardedUnit& unit, const NamedTensors& state) const;

  const Units& units_;
  const ShardGroups& groups_;
};

}  // namespace stagecoach
