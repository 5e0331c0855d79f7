#pragma once
/// @file
/// The right half of the picture: the training loss over the epochs.

#include <string>
#include <vector>

#include "chapters/compare/comparison.h"

namespace stagecoach {

/// Axes, and a line a run; `height` is that of the diagram. A line has a gap where a loss is no finite number.
std::string loss_panel(const std::vector<RunSummary>& runs, double height);

}  // namespace stagecoach
