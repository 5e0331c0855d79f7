#pragma once
/// @file
/// One batch on the ranks of a Pipe: its forwards and its backwards, in one run or in two.

#include <functional>
#include <memory>
#include <vector>

#include "parallel/launch/rank_pool.h"
#include "parallel/pipeline/pipeline.h"
#include "parallel/schedule/schedule.h"

namespace stagecoach {

/// For use by one thread.
class PipeBatch {
 public:
  /// The micro-batches of a run, on any device. Those that a run does not need are left out.
  struct Parts {
    std::vector<Tensor> inputs = {};            ///< [n, …]
    std::vector<NamedTensors> values = {};      ///< more inputs, by name, each [n, …]
    std::vector<Tensor> targets = {};           ///< [n, …]; without them no loss is computed
    std::vector<Tensor> output_gradients = {};  ///< [n, …]
  };
  using MakePipeline = std::function<std::unique_ptr<Pipeline>(Rank& rank)>;

  /// `samples` has the number of samples of each micro-batch.
  PipeBatch(std::shared_ptr<RankPool> ranks, std::vector<std::int64_t> samples, MakePipeline make_pipeline);

  /// Runs `schedule`, or those of its micro-batches that the batch has, on all ranks.
  void run(const Schedule& schedule, const Parts& parts, const Hooks& hooks = {});

  bool trains = true;                          ///< the layers' mode; without it nothing is kept for a backward
  bool wants_input_gradient = false;           ///< see StepData
  std::optional<BatchPosition> position = {};  ///< see StepData
  const std::vector<std::int64_t>& samples() const { return samples_; }

 private:
  std::shared_ptr<RankPool> ranks_;
  std::vector<std::int64_t> samples_;
  MakePipeline make_pipeline_;
  std::vector<std::unique_ptr<Pipeline>> pipelines_;  // one per rank, from the first run on
};

/// Returns the output of all micro-batches [N, …], whose graph ends here: its backward runs `backwards` on the ranks,
/// which adds to the gradients of the layers' parameters, and returns the gradient of `x` if x requires one.
Tensor with_backward(const Tensor& output, const Tensor& x, std::unique_ptr<PipeBatch> batch, Schedule backwards);

}  // namespace stagecoach
