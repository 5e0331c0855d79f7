#pragma once
/// @file
/// Draws timelines as text and as a figure.

#include <string>
#include <utility>
#include <vector>

#include "parallel/data_parallel/step_timeline.h"
#include "parallel/drawing/terminal.h"

namespace stagecoach {

using NamedTimelines = std::vector<std::pair<std::string, Timeline>>;

/// Draws two lines per timeline, all on one scale: the rank's work (a dot is an idle moment), and its messages, each of
/// which begins with '|'. `unit` is the unit of the timelines' times; "s" is shown in ms.
std::string draw_text(const NamedTimelines& timelines, const Terminal& terminal = {},
                      const std::string& unit = "units");

/// Draws the same as an SVG figure.
std::string draw_svg(const NamedTimelines& timelines, const std::string& title, const std::string& unit);

}  // namespace stagecoach
