#pragma once
/// @file
/// What --explain prints.

#include "chapters/07_one_controller/placed_model.h"

namespace stagecoach {

/// Prints the device of each layer and, for the pipelined form, the work of every device in each clock tick.
void explain(const Settings& settings, const PlacedModel& model);

}  // namespace stagecoach
