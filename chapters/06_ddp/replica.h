#pragma once
/// @file
/// A rank that has the whole model, and trains it on its part of each batch.

#include "chapters/06_ddp/way.h"
#include "nn/sequential.h"

namespace stagecoach {

class Replica : public Way {
 public:
  explicit Replica(const Start& start);

  Module& model() override { return *model_; }
  Optimizer& optimizer() override { return *optimizer_; }
  MicroBatchLoader loader(LoaderFor purpose) override;
  void start() override;
  Prediction finish_epoch(std::int64_t steps) override;
  void evaluate(Epoch& epoch, MicroBatchLoader& batches) override;

 protected:
  /// Forward and backward of this rank's pictures, micro-batch by micro-batch. The gradients add up to the rank's part
  /// of the whole batch's: each picture counts 1 / N, wherever it is. `before_backward` gets whether this backward is
  /// the step's last, and its loss.
  void run_shard(const MicroBatches& batch, EpochSums& sums,
                 const std::function<void(bool last, const Tensor& loss)>& before_backward);
  /// Sums that the rank waits for: they are entered in the trace beside its own work.
  void communicate(const char* name, const std::function<void()>& sums);
  /// The optimizer's step, when the gradients are those of the whole batch.
  void update();

  const Settings& settings_;
  const Team& team_;
  const Dataset& training_;
  const Dataset& testing_;
  Rank& rank_;
  std::shared_ptr<Sequential> model_;
  std::unique_ptr<Optimizer> optimizer_;
  NamedTensors parameters_;
  StepTimes times_;
};

}  // namespace stagecoach
