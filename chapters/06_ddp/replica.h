#pragma once
/// @file
/// A rank that holds the whole model, and trains it on its shard of each batch.

#include "chapters/06_ddp/strategy.h"
#include "nn/sequential.h"
#include "parallel/data_parallel/reducer.h"

namespace stagecoach {

class Replica : public Strategy {
 public:
  explicit Replica(const Context& context);

  Module& model() override { return *model_; }
  Optimizer& optimizer() override { return *optimizer_; }
  MicroBatchLoader loader(LoaderFor purpose) override;
  void broadcast_weights() override;
  /// Takes one micro-batch after the other. Summed over all ranks, the gradients are those of the whole batch: each of
  /// its N images counts 1 / N, whichever rank has it.
  void forward_backward(const MicroBatches& batch, EpochSums& sums) override;
  void update() override;
  void sync_replicas() override;
  Predictor predictor() override;
  StepTimes* times() override { return &times_; }
  void evaluate(Epoch& epoch, MicroBatchLoader& loader) override;
  void print_sample() override;

 protected:
  /// Called before each backward: with whether it is the last of the step, and with the loss that it starts from.
  virtual void before_backward(bool /*is_last*/, const Tensor& /*loss*/) {}
  /// Has `use` called with each gradient of a step as soon as it is complete, from within the step's last backward.
  void on_complete_gradient(const std::function<void(const Tensor& gradient)>& use);
  /// Returns the reducer's settings: --first-bucket-size, --bucket-size, --find-unused, --compress.
  ReducerSettings reducer_settings() const;

  // Communication, whose times become part of the trace and of the predictions.
  /// Replaces `tensor` by its sum over all ranks.
  void all_reduce(Tensor& tensor) {
    communicate("all_reduce", [&] { rank_.comm.all_reduce(tensor); });
  }
  /// Has a second thread of the rank do the same, one tensor after the other. Needs on_complete_gradient().
  void start_all_reduce(Tensor tensor);
  void wait_for_all_reduces();
  void wait_for(Reducer& reducer);
  /// Calls `collective`, which blocks.
  void communicate(const char* name, const std::function<void()>& collective);

  const Settings& settings_;
  const Topology& topology_;
  const TrainTest& data_;
  Rank& rank_;
  std::shared_ptr<Sequential> model_;
  std::unique_ptr<Optimizer> optimizer_;
  NamedTensors parameters_;
  StepTimes times_;  // of forward, backward, reductions and update, for the prediction

 private:
  /// Returns the predicted step with these measured costs; nothing if it cannot be predicted.
  std::optional<Timeline> predicted_step(const StepCosts& costs) const;
  Prediction predicted_time(std::int64_t steps) const;
  std::optional<TracePrediction> predicted_timeline() const;

  bool is_last_backward_ = false;  // of the step: only then are the gradients complete
  std::vector<CommThread::Pending> all_reduces_;
  std::optional<CommThread> comm_thread_;  // destroyed first
};

}  // namespace stagecoach
