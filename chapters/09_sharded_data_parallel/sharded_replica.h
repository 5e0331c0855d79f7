#pragma once
/// @file
/// What the two forms of sharded data parallelism have in common, and the one of the library.

#include <memory>

#include "chapters/common/micro_batch_loader.h"
#include "nn/optimizer.h"
#include "nn/sequential.h"
#include "parallel/pipeline/rank_role.h"
#include "parallel/training/run.h"

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
  virtual void accumulate(const Tensor& loss, std::int64_t samples);
  /// Runs the last backward of a step. Then the gradients of shards() are sums over all ranks.
  virtual void backward(const Tensor& loss, std::int64_t samples) = 0;
  /// Has an optimizer that clips do so by the norm of the gradients of all ranks.
  virtual void clip_norms_of(Optimizer& optimizer);
  /// Returns what a run saves: without layers, nothing.
  virtual RankRole role() { return {.splits_losses = true}; }

  /// Adds up the gradients of this rank's micro-batches; after the last, those of all ranks.
  void forward_backward(const MicroBatches& batch, EpochSums& sums);
  /// Tests the model. All ranks take part in all forwards, as each has a part of the weights: a rank without images has
  /// an empty batch.
  void evaluate(Module& model, Epoch& epoch, MicroBatchLoader& loader);
  /// --sample: prints what a model of text writes.
  void print_sample(const Settings& settings, Module& model, const Rank& rank);
};

/// Returns the model, whose layers have no memory yet, with the batch norm of --sync-batch-norm.
std::shared_ptr<Sequential> make_blank_model(const Settings& settings, const Dataset& data, Communicator& comm);

/// Returns the library's form, with the weights of --weights, if given.
std::unique_ptr<ShardedReplica> make_replica_of_units(const Settings& settings, const Sequential& model,
                                                      Communicator& comm);

/// Returns a loader of this rank's shard of each batch.
MicroBatchLoader loader_of(const Settings& settings, const Dataset& data, LoaderFor purpose, const Rank& rank);

/// Throws UsageError for what this chapter does not do, and unless all ranks have equally many micro-batches.
void require_trainable(const Settings& settings, const Dataset& data);

}  // namespace stagecoach
