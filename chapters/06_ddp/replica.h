#pragma once
/// @file
/// A rank that has the whole model, and trains it on its shard of each batch.

#include "chapters/06_ddp/strategy.h"
#include "nn/sequential.h"

namespace stagecoach {

class Replica : public Strategy {
 public:
  explicit Replica(const Context& context);

  Module& model() override { return *model_; }
  Optimizer& optimizer() override { return *optimizer_; }
  MicroBatchLoader loader(LoaderFor purpose) override;
  void broadcast_weights() override;
  Prediction finish_epoch(std::int64_t steps) override;
  void evaluate(Epoch& epoch, MicroBatchLoader& batches) override;

 protected:
  /// Forward and backward of this rank's images, micro-batch by micro-batch. Over all ranks the gradients add up to
  /// those of the whole batch: each image counts 1 / N, on whichever rank it is. `before_backward` is told whether this
  /// backward is the last of the step, and gets its loss.
  void forward_backward(const MicroBatches& batch, EpochSums& sums,
                        const std::function<void(bool last, const Tensor& loss)>& before_backward);
  /// Calls `collective`, for which the rank waits, and records it in the trace beside the rank's own work.
  void communicate(const char* name, const std::function<void()>& collective);
  /// The optimizer's step, once the gradients are those of the whole batch.
  void update();

  const Settings& settings_;
  const Topology& topology_;
  const Dataset& train_data_;
  const Dataset& test_data_;
  Rank& rank_;
  std::shared_ptr<Sequential> model_;
  std::unique_ptr<Optimizer> optimizer_;
  NamedTensors parameters_;
  StepTimes times_;  // of forward, backward, reductions and update, for the prediction
};

}  // namespace stagecoach
