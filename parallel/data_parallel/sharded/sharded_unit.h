#pragma once
/// @file
/// A unit: layers whose weights are gathered, used and freed together. This is one rank's side of it.
///
/// The unit's parameters are views of one flat tensor, one after another, with zeros at the end so that the ranks'
/// parts are equal. Rank r keeps part r, its shard, which may contain several parameters or a part of one:
///
///     | weight [2, 3]           | bias [2]    | 0 |     9 elements for 3 ranks
///     | rank 0    | rank 1    | rank 2      …         3 each
///
/// Source: Zhao et al., "PyTorch FSDP: experiences on scaling fully sharded data parallel", 2023, whose FlatParameter
/// this is.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "nn/sequential.h"
#include "parallel/comm/comm_thread.h"
#include "parallel/data_parallel/sharded/shard_groups.h"
#include "parallel/data_parallel/sharded/sharded_settings.h"

namespace stagecoach {

/// All ranks call the same functions in the same order. All that another thread does is the work of the CommThread,
/// with groups of that thread.
class ShardedUnit {
 public:
  /// Materializes `layers`, which must have no memory, and keeps this rank's shard of their parameters. Until it
  /// returns, the whole parameters are in memory: once, or twice if they stay. From then on, backwards leave the
  /// gradients to this unit.
  ShardedUnit(std::shared_ptr<Sequential> layers, const ShardedSettings& settings, const ShardGroups& groups);
  ~ShardedUnit();
  ShardedUnit(const ShardedUnit&) = delete;
  ShardedUnit& operator=(const ShardedUnit&) = delete;

  /// Needs the weights.
  Tensor forward(const Tensor& x) { return layers_->forward(x); }
  /// Returns the whole parameters, each once, which have elements only while the weights are gathered.
  const NamedTensors& parameters() const { return parameters_; }
  /// Returns what this rank updates: its part of each parameter that its shard contains, under that parameter's name.
  /// The part of a parameter of two or more dimensions has two, [1, n], the others are [n]: optimizers that decay
  /// weights only go by that.
  const NamedTensors& shards() const { return shards_; }
  /// Returns where the parameters begin in the flat tensors, and how many elements of them a shard has.
  const std::vector<std::int64_t>& offsets() const { return offsets_; }
  std::int64_t part() const { return part_; }
  /// Returns where shards() begin in a shard.
  const std::vector<std::int64_t>& shard_offsets() const { return shard_offsets_; }
  NamedTensors buffers() const { return layers_->named_buffers(); }
  /// Returns the index in parameters() of the parameter that each of shards() is a part of.
  const std::vector<std::size_t>& whole_of_shards() const { return whole_of_shards_; }

  // Weights.
  bool has_weights() const { return has_weights_; }
  /// Starts an all-gather of the weights, unless they are there or under way.
  void start_gather(CommThread& thread, const ShardGroups& groups);
  /// Waits for the weights. Throws Error unless start_gather() has been called.
  void wait_for_weights();
  /// With Sharded::parameters frees the weights; graphs that saved them can use them again after another gather.
  /// Without, declares them out of date: the next gather overwrites them.
  void free_weights();

  // Flat tensors, which have the elements of the whole parameters, or others of their shapes, one after another.
  /// Returns [part]: this rank's shard of a flat tensor, given its parts in the order of shards().
  Tensor joined(const std::vector<Tensor>& parts) const;
  /// Returns the places of such parts in a shard.
  std::vector<Tensor> parts_of(const Tensor& shard) const;
  /// Returns the flat tensor [ranks part] of these shards. All ranks call it together.
  Tensor gathered(const Tensor& shard, const ShardGroups& groups) const;
  /// Returns the places of the parameters in a flat tensor, under their names followed by `suffix`.
  NamedTensors places_in(const Tensor& flat, const std::string& suffix = "") const;
  /// Returns this rank's shard of a flat tensor.
  Tensor own_part(const Tensor& flat) const { return flat.alias({part_}, rank_ * part_); }
  /// Returns a flat tensor of zeros.
  Tensor flat_zeros() const { return Tensor::zeros(weights_.shape(), weights_.dtype(), weights_.device()); }
  /// Returns this rank's shard of the weights.
  const Tensor& shard() const { return shard_; }
  /// Replaces the weights by the flat tensor `weights`.
  void set_weights(const Tensor& weights);

  // Gradients.
  /// Starts to sum the gradients: over the ranks of a group, and then over the copies. Throws Error that names a
  /// parameter without one.
  void start_reduction(CommThread& thread, const ShardGroups& groups);
  /// Waits for the sums of this rank's shard, adds them to those of earlier reductions, and frees the whole gradients.
  void finish_reduction();
  /// Makes the sums the gradients of shards().
  void hand_out_gradients();

 private:
  void flatten(int ranks, Device device);
  void cut_shard();
  /// The elements of a shard that belong to one parameter: none if the length is not positive.
  struct Range {
    std::int64_t begin;
    std::int64_t length;
  };
  Range range_in_shard(std::size_t parameter) const;
  void take_gradient(std::size_t parameter);
  void reduce(const ShardGroups& groups);
  /// Returns a parameter's place in `flat`, which is like the flat weights.
  Tensor place_of(const Tensor& flat, std::size_t parameter) const;

  std::shared_ptr<Sequential> layers_;
  Sharded sharded_;
  CompressionKind compress_;
  std::int64_t rank_;
  std::int64_t part_ = 0;  // elements per rank
  NamedTensors parameters_;
  std::vector<std::int64_t> offsets_;  // of the parameters in the flat tensors
  NamedTensors shards_;
  std::vector<std::size_t> whole_of_shards_;
  std::vector<std::int64_t> shard_offsets_;  // in the shard

  Tensor weights_;  // [ranks part]: flat; without memory while the weights are freed
  Tensor shard_;    // [part]; with replicated weights a view of them
  bool has_weights_ = false;
  Tensor gathering_;  // [ranks part]: the weights under way
  std::optional<CommThread::Pending> gather_;

  Tensor gradients_;  // [ranks part]: flat, of this rank's samples
  Tensor sums_;       // [part]: over all ranks
  std::optional<CommThread::Pending> reduction_;
};

}  // namespace stagecoach
