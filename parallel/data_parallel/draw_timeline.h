#pragma once
/// @file
/// Timelines as text and as a picture.

#include <string>
#include <utility>
#include <vector>

#include "parallel/data_parallel/step_timeline.h"

namespace stagecoach {

using NamedTimelines = std::vector<std::pair<std::string, Timeline>>;

/// Two lines for each timeline, to one scale: what the rank computes (f: forward, B: backward, u: update), and what
/// travels (=, with | where another message begins).
std::string draw_text(const NamedTimelines& timelines, int columns);

/// The same as an SVG picture.
std::string draw_svg(const NamedTimelines& timelines, const std::string& title);

}  // namespace stagecoach
