#pragma once
/// @file
/// Training steps and tests that a Pipeline runs from a table.

#include "chapters/common/epoch_sums.h"
#include "chapters/common/plan.h"
#include "chapters/common/step_loader.h"
#include "parallel/pipeline/pipeline.h"

namespace stagecoach {

/// A rank's part of the model, ready to run. Its stages keep what --recompute says.
Pipeline open_pipeline(const PipelineSettings& settings, const Plan& plan,
                       const std::map<int, std::shared_ptr<Sequential>>& stages, Communicator& comm);

/// The forwards and backwards of a batch. Losses and right answers are added up on the rank of the last stage.
/// `reduce` is called where the plan's schedule sums the gradients of a stage over other pipelines; this rank may have
/// other stages still to run.
void run_step(Pipeline& pipeline, const Plan& plan, const Step& step, EpochSums& sums,
              const std::function<void(int stage)>& reduce = {});

/// The share of the test pictures for which the model scores the right class highest: on the rank of the last stage; 0
/// on the others. Micro-batches follow each other through the stages. `after_batch` is called between batches.
double accuracy(Pipeline& pipeline, const Plan& plan, StepLoader& loader, Communicator& comm,
                const std::function<void()>& after_batch);

}  // namespace stagecoach
