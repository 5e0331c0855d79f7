#pragma once
/// @file
/// What each rank of a pipeline does in a training: the loop of chapter 2, for any way to run a batch.

#include <functional>

#include "chapters/common/epoch_sums.h"
#include "chapters/common/plan.h"
#include "chapters/common/step_loader.h"
#include "datasets/dataset.h"
#include "parallel/pipeline/pipeline.h"

namespace stagecoach {

/// The forwards and backwards of a batch. On the rank of the last stage `sums` gets its loss and right answers.
using RunStep = std::function<void(Pipeline& pipeline, const Step& step, EpochSums& sums)>;

/// Trains and tests for --epochs, prints and saves. All ranks of the plan call it, in `launch`.
void train_pipeline(const Settings& settings, const Plan& plan, const TrainTest& data, Rank& rank,
                    const RunStep& run_step);

}  // namespace stagecoach
