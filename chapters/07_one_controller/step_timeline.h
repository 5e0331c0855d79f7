#pragma once
/// @file
/// The timeline of a training step: the host's calls, and the work of each device.

#include <functional>
#include <string>

#include "chapters/07_one_controller/placed_model.h"

namespace stagecoach {

/// Runs `step` twice, and returns the measured timeline of the second run as text: one row for the host, one per
/// asynchronous device.
std::string step_timeline(const PlacedModel& model, const std::function<void()>& step);

}  // namespace stagecoach
