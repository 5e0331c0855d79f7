#pragma once
/// @file
/// What a rank of chapter 4 has: the replica of a stage that it holds, and what trains and tests it.

#include <cstdint>
#include <memory>

#include "chapters/04_pipedream/stream_plan.h"
#include "chapters/common/run.h"
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

/// The optimizer's step after batch `batch` of the epoch. The learning rate may depend on how late gradients come.
void update(StageWorker& worker, const Epoch& epoch, std::int64_t batch);

/// At the end of an epoch: throws Error unless all replicas of the stage have the same weights, and gives them the same
/// statistics of batch norm, which are those of the micro-batches that each has had.
void agree_with_replicas(StageWorker& worker);

/// Tests the model on `images` images: ranks that hold the last stage count correct predictions. A few batches at a
/// time are on their way: without backwards nothing else holds the first stage back.
void evaluate(StageWorker& worker, Epoch& epoch, MicroBatchLoader& loader, std::int64_t images);

}  // namespace stagecoach
