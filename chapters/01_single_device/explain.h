#pragma once
/// @file
/// What --explain prints: one training step as a schedule, and what autograd keeps for it.

#include "chapters/common/settings.h"
#include "datasets/dataset.h"

namespace stagecoach {

/// Runs one forward pass of a micro-batch and shows its graph; trains nothing. With --out it also writes
/// schedule.csv and prediction.json.
void explain(const Settings& settings, const TrainTest& data, Device device);

}  // namespace stagecoach
