#pragma once
/// @file
/// Sharded data parallelism within a rank: as distributed data parallelism, but no weight, gradient or optimizer state
/// is held by more ranks than necessary.
///
/// A rank needs a layer's weights only while it computes that layer. So the model is cut into **units** of a few layers
/// (a block of a transformer), the weights of a unit are one flat tensor, and each rank keeps one part of it, its
/// **shard** (flat_parameters.h). With n ranks, `Sharded::parameters` and a limit of 1 + `prefetch` units:
///
///     forward    for each unit: wait for its weights, and meanwhile gather those of the next; compute; free them
///                (the last unit's stay: the backward begins with it)
///     backward   for each unit, from the last: wait for its weights, and meanwhile gather those of the unit before;
///                compute; free them; start the reduce-scatter of its gradients
///     step       the optimizer updates this rank's shards, from its part of the sums
///
/// One thread per rank communicates (CommThread): gathers and reductions run in the order of these lines, beside the
/// computation. Where a unit's backward begins, a gather goes ahead of the reduction of the unit after it, as the
/// computation waits for weights, not for sums. The gradients of at most two units are whole: of one that is computed
/// and of one that is reduced.
///
/// The other stages keep more and send less. They are the same steps: the weights stay in memory, and are gathered, in
/// place, once per step after the update; with `Sharded::optimizer` the whole gradients stay too. Per rank, with |w|
/// bytes of weights, padded, and Adam:
///
/// | what is sharded | weights   | gradients    | states  | sent per step: gathers + reductions, in |w| (n - 1) / n |
/// |-----------------|-----------|--------------|---------|---------------------------------------------------------|
/// | optimizer       | |w|       | |w|          | 2|w|/n  | 1 + 1                                                   |
/// | gradients       | |w|       | |w|/n        | 2|w|/n  | 1 + 1                                                   |
/// | parameters      | |w|/n     | |w|/n        | 2|w|/n  | 2 + 1 (without the last unit's second gather)           |
///
/// Without `reshard_after_forward` weights stay from the forward of a unit to its backward: the last row sends 1 + 1.
/// With several copies of the weights (hybrid sharding), n is the number of ranks of one group: gathers stay within a
/// group, and after each reduce-scatter the sums of a shard are all-reduced over the groups (shard_groups.h).
///
/// Frozen parameters (`trains`) have a flat tensor of their own in their unit: gathered, but without gradient and
/// state. Tied ones (`tied`), too, for all units that use them: it is gathered for each, and each use's gradient is
/// reduced. Sources: Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models", 2020;
/// Zhao et al., "PyTorch FSDP: experiences on scaling fully sharded data parallel", 2023.

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "nn/optimizer.h"
#include "nn/sequential.h"
#include "nn/weights.h"
#include "parallel/comm/comm_thread.h"
#include "parallel/comm/communicator.h"
#include "parallel/data_parallel/sharded/sharded_units.h"
#include "parallel/wrappers/sharded_layers.h"

namespace stagecoach {

/// Trains one model on all ranks, each with its samples:
///
///     launch(world, [&](Rank& rank) {
///       ShardedDataParallel sharded(model, rank.comm, {.seed = seed});  // the model gets its weights here
///       Adam optimizer(sharded.shards());
///       const Tensor loss = cross_entropy(sharded.forward(my_images.to(rank.device)), my_labels.to(rank.device),
///                                         Reduction::sum);
///       sharded.backward(loss, images_of_all_ranks);
///       optimizer.step();
///       optimizer.zero_grad();
///     });
///
/// The weights are, bit for bit, those of one device that accumulates the gradients of the ranks' shares in rank order;
/// with several copies, first those of each group.
/// All ranks call the same functions equally often, forward() in evaluation too. For use by the rank's own thread.
class ShardedDataParallel {
 public:
  /// Materializes `model`, unit by unit. All ranks of `comm` construct it together. `model` must have no memory;
  /// `model` and `comm` must outlive this object and every graph of forward(). Buffers are each rank's own. Throws
  /// UsageError for settings that do not fit, Error unless the ranks' models and settings are the same.
  ShardedDataParallel(const Sequential& model, Communicator& comm, ShardedSettings settings = {});

  /// Returns what this rank's optimizer updates: its part of some of the trained parameters (FlatParameters::shards);
  /// of tied ones, of the first.
  NamedTensors shards() const;

  /// Returns the model's output. Throws Error unless `x` is on the rank's device.
  Tensor forward(const Tensor& x);
  /// Runs the backward of `loss` [], the sum over this rank's samples; then the gradients of shards() are the sums over
  /// all ranks. `samples` is the number of samples of the step on all ranks: the loss that is trained is the mean over
  /// them. All ranks call it, once per step. Throws Error as DistributedDataParallel does.
  void backward(const Tensor& loss, std::int64_t samples) { run_backward(loss, samples, true); }
  /// Runs the backward of a micro-batch that is not the last of its step.
  void accumulate(const Tensor& loss, std::int64_t samples) { run_backward(loss, samples, false); }

  /// Has `optimizer`, which updates shards(), take the norm of all gradients if it clips: that of one device, bit for
  /// bit. Without this call a rank would take that of its own shards.
  void sum_squares_for(Optimizer& optimizer) const;

  /// Reads weights into the ranks' shards, as load_weights() of one device does; a rank holds those of the layers that
  /// it saves, and one unit, at a time. All ranks call it together. Throws as that function does, and DataError if a
  /// file has two values for tied parameters.
  void load_weights(const std::string& path);
  /// Returns what a Run needs, so that its checkpoints and weights are those of one device, and any number of ranks can
  /// resume them, whatever they shard. It refers to this object.
  const RankRole& role() const { return role_; }

  /// Calls `visit` with the whole parameters of one flat tensor after the other: most units have one, tied parameters
  /// are visited once. They have elements only until it returns.
  void for_each_unit(const std::function<void(const NamedTensors& parameters)>& visit);
  int unit_count() const { return units_.count(); }

 private:
  void run_backward(const Tensor& loss, std::int64_t samples, bool ends_step);
  bool reshards() const { return settings_.shard == Sharded::parameters && settings_.reshard_after_forward; }
  void require_cleared_gradients() const;
  std::vector<double> sums_of_squares(const NamedTensors& gradients) const;
  void gather_from(int unit, int direction);
  void wait_for_weights(int unit);
  void free_weights(int unit, int direction);
  void reach(int unit);
  void reduce(int unit);
  void finish_reduction();
  ShardedUnit& unit(int index) { return units_.units[static_cast<std::size_t>(index)]; }

  Communicator& comm_;
  ShardedSettings settings_;
  ShardGroups groups_;                        // of the rank's own thread
  std::unique_ptr<ShardGroups> comm_groups_;  // of the other one
  ShardedUnits units_;
  ShardedLayers layers_;
  RankRole role_;
  // The backward that runs.
  bool is_running_ = false;
  bool ends_step_ = false;
  int reached_ = 0;           // the unit whose backward has begun last
  std::deque<int> reducing_;  // units whose reduction was not waited for
  bool has_failed_ = false;   // a backward threw when communication may have begun
  CommThread comm_thread_;    // destroyed first: its thread works on the units
};

}  // namespace stagecoach
