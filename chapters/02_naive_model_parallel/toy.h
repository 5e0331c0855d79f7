#pragma once
/// @file
/// One step of the smallest model on two ranks, small enough to print.

#include "chapters/common/settings.h"

namespace stagecoach {

/// Trains the model `toy` for one step on two ranks, and for comparison on one device. Prints the weights before and
/// after the step.
void show_toy(const Settings& settings);

}  // namespace stagecoach
