#pragma once
/// @file
/// Training steps and tests that a Pipeline runs from a table of actions.

#include <functional>
#include <map>
#include <memory>

#include "chapters/common/micro_batch_loader.h"
#include "chapters/common/plan.h"
#include "chapters/common/run.h"
#include "parallel/pipeline/pipeline.h"

namespace stagecoach {

/// Returns the pipeline that runs a rank's stages. What they keep for their backwards depends on --recompute, and
/// whether a GPU gets their work as CUDA graphs on --graph.
Pipeline make_pipeline(const Settings& settings, const Plan& plan,
                       const std::map<int, std::shared_ptr<Sequential>>& stages, Communicator& comm,
                       const ClassifierLoss& loss = loss_of_whole_logits);

/// Runs the forwards and backwards of a batch in the order of the plan's schedule. The rank of the last stage adds
/// losses and correct predictions to `sums`. `reduce` is called where the schedule sums the gradients of a stage over
/// several pipelines; other stages of this rank may not have finished by then.
void forward_backward(Pipeline& pipeline, const Plan& plan, const MicroBatches& batch, EpochSums& sums,
                      const std::function<void(int stage)>& reduce = {});

/// Tests the model: the rank of the last stage counts correct predictions in `sums`; by default, the epoch's test sums.
/// Micro-batches follow each other through the stages.
void evaluate(Pipeline& pipeline, const Plan& plan, Epoch& epoch, MicroBatchLoader& loader, EpochSums* sums = nullptr);

}  // namespace stagecoach
