#pragma once
/// @file
/// Data parallelism in one line: a model that is called like one on a single device, while several ranks share each
/// batch.

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "nn/loss_function.h"
#include "nn/make_optimizer.h"
#include "nn/module.h"
#include "parallel/launch/rank_pool.h"
#include "parallel/pipeline/rank_role.h"

namespace stagecoach {

struct DataParallelSettings {
  int ranks = 2;
  std::optional<LossFunction> loss = {};  ///< empty: the cross-entropy of logits [N, C] and labels int32 [N]
  MakeOptimizer optimizer = sgd();
  std::uint64_t seed = 1;       ///< of the initial weights
  DType type = DType::float32;  ///< of the weights, and of inputs that are no integers: or float64
  DeviceType device = DeviceType::cpu;
  double timeout = 30;  ///< seconds that a rank waits for another before the call fails
};

/// Trains a model on ranks that are threads, which stay alive between calls. Rank 0 owns the weights; for each batch
/// they are copied to the other ranks, every rank computes the gradients of its share of the batch, and rank 0 sums
/// them, in rank order, and makes the step. The weights are, bit for bit, those of one device that accumulates the
/// gradients of the shares as micro-batches. (DistributedDataParallel keeps the weights on all ranks and sums gradients
/// during the backward: faster, but each rank then holds an optimizer, and the program is written as one rank.)
///
/// Parameters that are frozen in rank 0's model (set_requires_grad) are frozen on all ranks. Parameters that no rank
/// used for a batch keep their values, as on one device.
///
/// Batch norm normalises each share by itself; its running statistics are those of rank 0's shares. For use by one
/// thread. If a rank fails, its error is thrown to the caller, and later calls throw Error.
/// Source of the interface: torch.nn.DataParallel.
class DataParallel {
 public:
  /// Calls `make_model` once per rank, as each rank needs a model of its own; it returns a new one, without memory.
  /// Throws UsageError for fewer than one rank, for a model that was returned before, and for settings that the
  /// optimizer refuses.
  explicit DataParallel(const std::function<std::shared_ptr<Module>()>& make_model, DataParallelSettings settings = {});

  /// Trains on a batch. Returns the mean loss over the N samples: inputs [N, …], float32 or what the first layer takes,
  /// with targets [N, …], both on any device. Throws UsageError for tensors of other shapes or types.
  double train_step(const Tensor& x, const Tensor& target);
  /// Returns the model's output for `x` [N, …] in evaluation mode, computed by rank 0: [N, …] on its device.
  Tensor forward(const Tensor& x);

  /// Returns the model of rank 0, whose weights may be read, saved, replaced and frozen between calls.
  Module& model() { return *models_[0]; }
  /// Returns the optimizer of that model. With both, parallel/training saves and resumes a training.
  Optimizer& optimizer() { return *optimizer_; }

  /// Returns what a Run (parallel/training/run.h) measures and prints of the ranks.
  RankRole role() const { return {.parts = BatchParts{ranks_->ranks()}, .pool = ranks_}; }

  /// Sets the learning rate from the next step on. Throws UsageError for a rate that the optimizer refuses.
  void set_learning_rate(double rate) { optimizer_->set_learning_rate(rate); }
  double learning_rate() const { return optimizer_->learning_rate(); }

 private:
  void copy_requires_grad();
  void reduce_gradients(Rank& rank);

  std::vector<std::shared_ptr<Module>> models_;  // one per rank
  std::optional<LossFunction> loss_;
  DType type_;
  std::unique_ptr<Optimizer> optimizer_;  // of rank 0's model
  std::shared_ptr<RankPool> ranks_;       // destroyed first: its threads work on the models
};

}  // namespace stagecoach
