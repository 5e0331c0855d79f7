#pragma once
/// @file
/// A rank of chapter 4: its replica of a stage, and the functions that train and test it.

#include <cstdint>
#include <memory>

#include "chapters/04_pipedream/stream_plan.h"
#include "chapters/common/run.h"
#include "core/autograd/node.h"
#include "nn/optimizer.h"
#include "parallel/pipeline/pipeline.h"

namespace stagecoach {

struct StageReplica {
  const Settings& settings;
  const StreamPlan& plan;
  Rank& rank;
  int stage;
  int delay;                               ///< the largest number of updates by which its gradients are late
  std::unique_ptr<Communicator> replicas;  ///< the ranks that hold this stage
  std::shared_ptr<Sequential> layers;
  std::unique_ptr<Optimizer> optimizer;
  Pipeline pipeline;
  std::unique_ptr<UncheckedVersions> unchecked;  ///< with --no-version-check; otherwise null
};

/// Returns this rank's replica. All ranks of the plan call it together; the arguments must outlive the result. With
/// --no-version-check, while it exists autograd does not refuse a backward on this thread whose weights have changed.
StageReplica make_stage_replica(const Settings& settings, const StreamPlan& plan, const Dataset& data, Rank& rank);

/// Runs the optimizer's step after batch `batch` of the epoch. The learning rate may depend on the delay of gradients.
void update(StageReplica& replica, const Epoch& epoch, std::int64_t batch);

/// Called at the end of an epoch. Throws Error unless all replicas of the stage have the same weights. Then copies the
/// batch norm statistics of the first replica to the others, as each replica has seen other micro-batches.
void sync_replicas(StageReplica& replica);

/// Tests the model on `images` images: ranks that hold the last stage count correct predictions. Only a few batches are
/// in flight at once: without backwards, nothing else would limit how far ahead the first stage runs.
void evaluate(StageReplica& replica, Epoch& epoch, MicroBatchLoader& loader, std::int64_t images);

}  // namespace stagecoach
