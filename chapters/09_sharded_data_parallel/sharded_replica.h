#pragma once
/// @file
/// What the two forms of sharded data parallelism have in common.

#include <algorithm>

#include "chapters/common/micro_batch_loader.h"
#include "core/base/throw_if.h"
#include "parallel/data_parallel/sharded/sharded_settings.h"

namespace stagecoach {

/// One rank's side of the model. All ranks call the same functions together.
class ShardedReplica {
 public:
  ShardedReplica() = default;
  virtual ~ShardedReplica() = default;
  ShardedReplica(const ShardedReplica&) = delete;
  ShardedReplica& operator=(const ShardedReplica&) = delete;

  /// Returns what this rank's optimizer updates.
  virtual NamedTensors shards() = 0;
  virtual Tensor forward(const Tensor& x) = 0;
  /// Runs the backward of a micro-batch that is not the last of its step.
  virtual void accumulate(const Tensor& /*loss*/, std::int64_t /*samples*/) {
    fail("by hand: expected one micro-batch per step");
  }
  /// Runs the last backward of a step. Then the gradients of shards() are sums over all ranks.
  virtual void backward(const Tensor& loss, std::int64_t samples) = 0;
  /// From now on clips the gradients by the norm of those of all ranks.
  virtual void clip_norm(Optimizer& /*optimizer*/, double /*max_norm*/) { fail("by hand: expected no clipping"); }
};

inline ShardedSettings sharded_settings(const Settings& settings) {
  const ReplicaSettings& replicas = settings.data_parallel;
  return {.shard = replicas.shard,
          .reshard_after_forward = replicas.reshard_after_forward,
          .prefetch = replicas.prefetch,
          .accumulation = replicas.accumulation,
          .unit_layers = *replicas.unit_layers,
          .seed = settings.training.seed};
}

/// Returns a loader of this rank's shard of each batch.
inline MicroBatchLoader loader_of(const Settings& settings, const Dataset& data, LoaderFor purpose, const Rank& rank) {
  return {settings,
          data,
          purpose,
          rank.device,
          MicroBatchLoader::Needs::inputs_and_targets,
          purpose == LoaderFor::training ? settings.training.microbatches : 1,
          {rank.index, rank.world}};
}

/// Throws UsageError for what this chapter does not do, and unless all ranks have equally many micro-batches.
inline void require_trainable(const Settings& settings, const Dataset& data) {
  const RunSettings& run = settings.run;
  const std::int64_t rest = data.size() % settings.training.batch_size;
  const std::int64_t least = rest == 0 ? std::min(settings.training.batch_size, data.size()) : rest;
  const std::int64_t parts = settings.world.ranks * settings.training.microbatches;
  const char* flag = !run.out.empty()                     ? "out"
                     : !run.resume.empty()                ? "resume"
                     : !settings.training.weights.empty() ? "weights"
                     : run.explain                        ? "explain"
                     : run.sample > 0                     ? "sample"
                     : settings.training.tie_head         ? "tie-head"
                                                          : nullptr;
  throw_if<UsageError>(flag != nullptr,
                       "--{}: this chapter's weights are on no rank as a whole, and it cannot do that "
                       "with shards; leave out the flag",
                       flag == nullptr ? "" : flag);
  throw_if<UsageError>(settings.training.microbatches > 1 && least < parts,
                       "--microbatches {}: all ranks need the same number of micro-batches, but the last batch of an "
                       "epoch has {} images for {} ranks; give fewer, or another --batch-size",
                       settings.training.microbatches, least, settings.world.ranks);
  throw_if<UsageError>(
      settings.training.model.starts_with("resnet") && !settings.data_parallel.sync_batch_norm && least < parts,
      "--model {}: batch norm needs an image on each rank, but the last batch of an epoch has {} for "
      "{} ranks; give --sync-batch-norm, another --batch-size, or fewer ranks",
      settings.training.model, least, settings.world.ranks);
}

}  // namespace stagecoach
