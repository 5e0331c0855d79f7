#pragma once
/// @file
/// Data parallelism within a rank: a program that trains one model on one device becomes one that trains it on many.

#include <cstdint>

#include "nn/module.h"
#include "parallel/comm/communicator.h"
#include "parallel/data_parallel/reducer.h"

namespace stagecoach {

/// Keeps the same model on all ranks: its gradients are summed over the ranks, in buckets, while the backward that
/// computes them is still running (see reducer.h).
///
///     launch(world, [&](Rank& rank) {
///       model.materialize(seed, rank.device);
///       DistributedDataParallel ddp(model, rank.comm);
///       Sgd optimizer(model.named_parameters());
///       const Tensor loss = cross_entropy(ddp.forward(my_images.to(rank.device)), my_labels.to(rank.device),
///                                         Reduction::sum);
///       ddp.backward(loss, images_of_all_ranks);  // now all ranks have the same gradients
///       optimizer.step();
///       optimizer.zero_grad();
///     });
///
/// The weights are, bit for bit, those of one device that accumulates the gradients of the ranks' shares in rank order.
/// (With several backwards per step, each rank's sum is added as a whole.) For use by the rank's own thread.
/// Source of the interface: torch.nn.parallel.DistributedDataParallel, whose loss is a mean per rank and whose
/// gradients are averaged; here the loss is a sum, so that ranks with fewer samples weigh less.
class DistributedDataParallel {
 public:
  /// Copies the parameters and buffers of rank 0 to all ranks. All ranks of `comm` construct it together. `model` must
  /// have memory; `model` and `comm` must outlive this object. Throws Error unless the ranks' models have the same
  /// tensors. Later, buffers are each rank's own: the running statistics of batch norm are those of the rank's images.
  DistributedDataParallel(Module& model, Communicator& comm, ReducerSettings settings = {});

  /// Returns the model's output. Throws Error unless `x` is on the rank's device.
  Tensor forward(const Tensor& x);

  /// Runs the backward of `loss` [], the sum over this rank's samples, and waits until the gradients of all parameters
  /// are the sums over all ranks. `samples` is the number of samples of the step on all ranks: the loss that is trained
  /// is the mean over them. All ranks call it, once per step; a rank without images of its own passes the loss of some
  /// image times 0. Throws Error for fewer than one sample, for a loss without a graph, and if the last step's
  /// gradients were not cleared: these change nothing. Throws Error if a parameter gets no gradient or a layer's
  /// backward throws, CommError if another rank fails: then the ranks' gradients differ, and later calls throw Error.
  void backward(const Tensor& loss, std::int64_t samples);
  /// Runs the backward of a micro-batch that is not the last of its step: gradients are accumulated on this rank only.
  void accumulate(const Tensor& loss, std::int64_t samples);

 private:
  void require_working() const;

  Module& model_;
  Device device_;  // the rank's
  Reducer reducer_;
  bool has_failed_ = false;  // a backward threw when reductions may have begun
};

}  // namespace stagecoach
