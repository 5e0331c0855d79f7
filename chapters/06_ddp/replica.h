#pragma once
/// @file
/// A rank that holds the whole model, and trains it on its shard of each batch.

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
  void sync_replicas() override;
  Predictor predictor() override;
  void evaluate(Epoch& epoch, MicroBatchLoader& loader) override;

 protected:
  /// Runs forward and backward for this rank's images, one micro-batch after the other. Summed over all ranks, the
  /// gradients are those of the whole batch: each of its N images counts 1 / N, whichever rank has it.
  /// `before_backward`, if given, is called before each backward: with whether it is the last of the step, and with the
  /// loss that it starts from.
  void forward_backward(const MicroBatches& batch, EpochSums& sums,
                        const std::function<void(bool is_last, const Tensor& loss)>& before_backward = {});
  /// Calls `collective`, which blocks, and records it in the trace and in the step's times.
  void communicate(const char* name, const std::function<void()>& collective);
  /// Returns the predicted step with these measured costs; nothing if it cannot be predicted.
  std::optional<Timeline> predicted_step(const StepCosts& costs) const;
  /// Runs the optimizer's step, then zero_grad. Called when the gradients are those of the whole batch.
  void update();

  const Settings& settings_;
  const Topology& topology_;
  const TrainTest& data_;
  Rank& rank_;
  std::shared_ptr<Sequential> model_;
  std::unique_ptr<Optimizer> optimizer_;
  NamedTensors parameters_;
  StepTimes times_;  // of forward, backward, reductions and update, for the prediction

 private:
  Prediction predicted_time(std::int64_t steps) const;
  std::optional<TracePrediction> predicted_timeline() const;
};

}  // namespace stagecoach
