#pragma once
/// @file
/// What each rank of a pipeline does in a training: the loop of chapter 2, for any way of running a batch.

#include <functional>

#include "chapters/common/epoch_sums.h"
#include "chapters/common/micro_batch_loader.h"
#include "chapters/common/plan.h"
#include "datasets/dataset.h"
#include "parallel/pipeline/pipeline.h"

namespace stagecoach {

/// The forwards and backwards of a batch. On the rank of the last stage `sums` gets its losses and correct predictions.
using RunStep = std::function<void(Pipeline& pipeline, const MicroBatches& batch, EpochSums& sums)>;

/// Trains and tests for --epochs, prints and saves. All ranks of the plan call it, in `launch`.
void train_pipeline(const Settings& settings, const Plan& plan, const TrainTest& data, Rank& rank,
                    const RunStep& run_step);

}  // namespace stagecoach
