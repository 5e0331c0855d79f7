#pragma once
/// @file
/// What --explain prints.

#include <functional>
#include <string>

#include "chapters/07_one_controller/placed_model.h"

namespace stagecoach {

/// Returns a table of the layers: the device of each, the shape of its output for a batch, and its parameters.
std::string layer_table(const TrainingSettings& training, const PlacedModel& model);

/// One training step, which adds to `sums`.
using TrainStep = std::function<void(const Settings& settings, const PlacedModel& model, const Batch& batch,
                                     Optimizer& optimizer, EpochSums& sums)>;

/// Prints the device of each layer and, for the pipelined form, the work of every device in each clock tick. With
/// --profile also runs `step` twice, and prints the timeline of the second run: one row for the host, one per
/// asynchronous device. On the modelled clock nothing is computed but times, and --out gets prediction.json.
void explain(const Settings& settings, PlacedModel& model, const Dataset& data, const TrainStep& step);

}  // namespace stagecoach
