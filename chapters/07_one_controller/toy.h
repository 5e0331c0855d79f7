#pragma once
/// @file
/// One step of the smallest model on two devices.

#include "chapters/common/settings.h"

namespace stagecoach {

/// Trains the model `toy` for one step, with its two linear layers on the first two devices, and for comparison on one
/// device. Prints where everything is.
void show_toy(const Settings& settings);

}  // namespace stagecoach
