#pragma once
/// @file
/// Data parallelism in one line: a model that is called like one on a single device, while several ranks share each
/// batch.

#include <functional>
#include <memory>
#include <vector>

#include "nn/make_optimizer.h"
#include "nn/module.h"
#include "parallel/launch/rank_pool.h"

namespace stagecoach {

struct DataParallelSettings {
  int ranks = 2;
  MakeOptimizer optimizer = sgd();
  std::uint64_t seed = 1;  ///< of the initial weights
  DeviceType device = DeviceType::cpu;
  double timeout = 30;  ///< seconds that a rank waits for another before the call fails
};

/// Trains a model on ranks that are threads, which stay alive between calls. Rank 0 owns the weights; for each batch
/// they are copied to the other ranks, every rank computes the gradients of its share of the batch, and rank 0 sums
/// them, in rank order, and makes the step. The weights are, bit for bit, those of one device that accumulates the
/// gradients of the shares as micro-batches. (DistributedDataParallel keeps the weights on all ranks and sums gradients
/// during the backward: faster, but each rank then holds an optimizer, and the program is written as one rank.)
///
/// Batch norm normalises each share by itself; its running statistics are those of rank 0's shares. For use by one
/// thread. If a rank fails, its error is thrown to the caller, and later calls throw Error.
/// Source of the interface: torch.nn.DataParallel.
class DataParallel {
 public:
  /// Calls `make_model` once per rank, as each rank needs a model of its own; it returns a new one, without memory.
  /// Throws UsageError for fewer than one rank.
  explicit DataParallel(const std::function<std::shared_ptr<Module>()>& make_model, DataParallelSettings settings = {});

  /// Trains on a batch. Returns the mean loss (cross-entropy) over the N images: float32 [N, …], with labels int32 [N],
  /// both on any device. Throws UsageError for tensors of other shapes or types.
  double train_step(const Tensor& images, const Tensor& labels);
  /// Returns the model's output for `x`, float32 [N, …], in evaluation mode, computed by rank 0: [N, …] on its device.
  Tensor forward(const Tensor& x);

  /// Returns the model of rank 0, whose weights may be read, saved and replaced between calls.
  Module& model() { return *models_[0]; }

 private:
  void reduce_gradients(Rank& rank);

  std::vector<std::shared_ptr<Module>> models_;  // one per rank
  std::unique_ptr<Optimizer> optimizer_;         // of rank 0's model
  RankPool ranks_;                               // destroyed first: its threads work on the models
};

}  // namespace stagecoach
