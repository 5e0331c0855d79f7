#pragma once
/// @file
/// What a rank of chapter 4 has: the replica of a stage that it holds, and what trains and tests it.

#include <cstdint>
#include <functional>
#include <memory>

#include "chapters/04_pipedream/stream_plan.h"
#include "nn/optimizer.h"
#include "parallel/pipeline/pipeline.h"

namespace stagecoach {

struct StageWorker {
  const Settings& settings;
  const StreamPlan& plan;
  Rank& rank;
  int stage;
  int delay;                               ///< updates by which its gradients come too late
  std::unique_ptr<Communicator> replicas;  ///< the ranks that hold this stage
  std::shared_ptr<Sequential> layers;
  std::unique_ptr<Optimizer> optimizer;
  Pipeline pipeline;
};

/// All ranks of the plan make theirs together; what is given must outlive it.
StageWorker open_stage_worker(const Settings& settings, const StreamPlan& plan, const Dataset& data, Rank& rank);

/// The share of the `images` test images that are classified right, as far as this rank has the last stage for them. A
/// few batches at a time are on their way: without backwards nothing else holds the first stage back. `after_each` is
/// called in between.
double accuracy(StageWorker& worker, StepLoader& loader, std::int64_t images, const std::function<void()>& after_each);

}  // namespace stagecoach
