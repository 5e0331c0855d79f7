#pragma once
/// @file
/// Parameters whose weights are gathered, used and freed together. This is one rank's side of them.
///
/// They are views of one flat tensor, one after another, with zeros at the end so that the ranks' parts are equal. Rank
/// r keeps part r, its shard, which may contain several parameters or a part of one:
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
#include <string>
#include <vector>

#include "nn/named_tensors.h"
#include "parallel/comm/comm_thread.h"
#include "parallel/data_parallel/sharded/flat_gradients.h"
#include "parallel/data_parallel/sharded/shard_groups.h"
#include "parallel/data_parallel/sharded/sharded_settings.h"

namespace stagecoach {

/// All ranks call the same functions in the same order. All that another thread does is the work of the CommThread,
/// with groups of that thread.
class FlatParameters {
 public:
  /// Makes `parameters`, whose values are the same on all ranks, views of a flat tensor, and keeps this rank's shard.
  /// All are trained, or all are frozen (requires_grad). Until it returns, the parameters are in memory once, or twice
  /// if they stay. From then on, backwards leave the gradients to this object.
  FlatParameters(NamedTensors parameters, const ShardedSettings& settings, const ShardGroups& groups);
  FlatParameters(const FlatParameters&) = delete;
  FlatParameters& operator=(const FlatParameters&) = delete;

  /// Makes `copy` the same as the only parameter: a view of the same elements, with a gradient of its own.
  void add_copy(const std::string& name, Tensor copy);

  /// Returns the whole parameters, each once, which have elements only while the weights are gathered.
  const NamedTensors& parameters() const { return parameters_; }
  const NamedTensors& copies() const { return copies_; }
  /// Returns whether they have gradients.
  bool trains() const { return parameters_.front().second.requires_grad(); }
  /// Returns this rank's part of each parameter that its shard contains, under that parameter's name: what this rank
  /// updates. The part of a parameter of two or more dimensions has two, [1, n], the others are [n]: optimizers that
  /// decay weights only go by that.
  const NamedTensors& shards() const { return shards_; }
  /// Returns where the parameters begin in the flat tensors, and how many elements of them a shard has.
  const std::vector<std::int64_t>& offsets() const { return layout_.offsets; }
  std::int64_t part() const { return layout_.part; }
  /// Returns where shards() begin in a shard.
  const std::vector<std::int64_t>& shard_offsets() const { return shard_offsets_; }
  /// Returns the index in parameters() of the parameter that each of shards() is a part of.
  const std::vector<std::size_t>& whole_of_shards() const { return whole_of_shards_; }

  // Weights.
  bool has_weights() const { return has_weights_; }
  /// Starts an all-gather of the weights, unless they are there or under way.
  void start_gather(CommThread& thread, const ShardGroups& groups);
  /// Waits for the weights. Throws Error unless start_gather() has been called.
  void wait_for_weights();
  /// With Sharded::parameters frees the weights; graphs that saved them can use them again after another gather.
  /// Without, declares them out of date, unless they are frozen: the next gather overwrites them.
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
  Tensor own_part(const Tensor& flat) const { return layout_.own_part(flat); }
  /// Returns a flat tensor of zeros.
  Tensor flat_zeros() const { return Tensor::zeros(weights_.shape(), weights_.dtype(), weights_.device()); }
  /// Returns this rank's shard of the weights.
  const Tensor& shard() const { return shard_; }
  /// Replaces the weights by the flat tensor `weights`.
  void set_weights(const Tensor& weights);

  // Gradients.
  /// Returns those of the parameters, or, with `copy` above 0, of that copy. Frozen ones have none.
  FlatGradients& gradients(std::size_t copy = 0) { return *gradients_[copy]; }
  /// Makes the sums over the ranks the gradients of shards(): those of the parameters, plus those of the copies.
  void hand_out_gradients();

 private:
  void flatten(Device device);
  void cut_shard();
  /// The elements of a shard that belong to one parameter: none if the length is not positive.
  struct Range {
    std::int64_t begin;
    std::int64_t length;
  };
  Range range_in_shard(std::size_t parameter) const;

  Sharded sharded_;
  CompressionKind compress_;
  NamedTensors parameters_;
  NamedTensors copies_;
  FlatLayout layout_;
  NamedTensors shards_;
  std::vector<std::size_t> whole_of_shards_;
  std::vector<std::int64_t> shard_offsets_;  // in the shard

  Tensor weights_;  // [ranks part]: flat; without memory while the weights are freed
  Tensor shard_;    // [part]; with replicated weights a view of them
  bool has_weights_ = false;
  Tensor gathering_;  // [ranks part]: the weights under way
  std::optional<CommThread::Pending> gather_;

  std::vector<std::unique_ptr<FlatGradients>> gradients_;  // of the parameters, then of the copies
};

}  // namespace stagecoach
