#pragma once
/// @file
/// Training steps and tests that a Pipeline runs from a table.

#include <functional>
#include <map>
#include <memory>

#include "chapters/common/epoch_sums.h"
#include "chapters/common/micro_batch_loader.h"
#include "chapters/common/plan.h"
#include "chapters/common/run.h"
#include "parallel/pipeline/pipeline.h"

namespace stagecoach {

/// A rank's part of the model, ready to run. Its stages keep what --recompute says.
Pipeline open_pipeline(const PipelineSettings& settings, const Plan& plan,
                       const std::map<int, std::shared_ptr<Sequential>>& stages, Communicator& comm);

/// The forwards and backwards of a batch, by the plan's schedule. The rank of the last stage adds losses and correct
/// predictions to `sums`. `reduce` is called where the schedule sums the gradients of a stage over other pipelines;
/// this rank may have other stages still to run.
void run_step(Pipeline& pipeline, const Plan& plan, const MicroBatches& batch, EpochSums& sums,
              const std::function<void(int stage)>& reduce = {});

/// The optimizer's step for the rank's layers, and gradients of zero. It is timed with the pipeline's actions.
void update(ActionLog& log, Optimizer& optimizer);

/// Tests the model: the rank of the last stage counts correct predictions in the epoch's test sums. Micro-batches
/// follow each other through the stages.
void evaluate(Pipeline& pipeline, const Plan& plan, Epoch& epoch, MicroBatchLoader& loader);

}  // namespace stagecoach
