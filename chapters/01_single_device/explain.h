#pragma once
/// @file
/// The output of --explain: one training step as a schedule, and what autograd keeps for its backward.

#include "chapters/common/settings.h"
#include "datasets/dataset.h"

namespace stagecoach {

/// Runs the forward of one micro-batch and prints its graph, without training. With --out, also writes schedule.csv and
/// prediction.json.
void explain(const Settings& settings, const TrainTest& data, Device device);

}  // namespace stagecoach
