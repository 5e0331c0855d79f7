#pragma once
/// @file
/// Draws a comparison as a figure.

#include <string>

#include "chapters/compare/comparison.h"

namespace stagecoach {

/// Returns a self-contained SVG figure. The upper part has one row per run: its epoch time, speed-up and idle share as
/// bars, with outlines for the predicted time, the ideal speed-up and the predicted idle share, and the peak memory of
/// each rank. The lower part shows the training loss and the test accuracy over the epochs. Runs whose losses coincide
/// share a colour and a curve, and the legend says whether their weights are identical bytes.
std::string plot_svg(const Comparison& comparison);

}  // namespace stagecoach
