#pragma once
/// @file
/// One step of the smallest model on two ranks, small enough to print.

#include "chapters/common/settings.h"

namespace stagecoach {

/// Trains the model `toy` for one step on two ranks, and on one device beside them; prints the weights before and
/// after.
void show_toy(const Settings& settings);

}  // namespace stagecoach
