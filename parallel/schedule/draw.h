#pragma once
/// @file
/// Timelines of a schedule: for a terminal, and as a picture.

#include <string>

#include "parallel/schedule/schedule.h"
#include "parallel/schedule/simulate.h"

namespace stagecoach {

enum class Colours { none, terminal };

/// A line a rank; time runs to the right, `columns` wide at most. An action shows its letter, and its micro-batch where
/// there is room; a dot is an idle moment. Of several stages on a rank each has a shade of its own.
std::string draw_text(const Schedule& schedule, const Simulation& simulation, int columns = 100,
                      Colours colours = Colours::none);

/// The same as an SVG picture with a legend of the idle share.
std::string draw_svg(const Schedule& schedule, const Simulation& simulation, const std::string& title);

}  // namespace stagecoach
