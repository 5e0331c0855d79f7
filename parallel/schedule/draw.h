#pragma once
/// @file
/// Draws a schedule as a timeline: for a terminal and as a figure.

#include <string>

#include "parallel/drawing/terminal.h"
#include "parallel/schedule/ledger.h"
#include "parallel/schedule/schedule.h"
#include "parallel/schedule/simulate.h"

namespace stagecoach {

/// Returns a timeline with one line per rank; time runs to the right. An action shows its letter and its micro-batch.
/// If a rank has several stages, a small letter says which of them (its chunk): "F12b". A timeline that does not fit
/// into the width of the terminal continues in further blocks of lines (see parallel/drawing/timeline.h). With a
/// ledger, lighter and darker colours show the versions; without one, they show the chunks. `unit` is the unit of the
/// times in `simulation`; "s" is shown in ms.
std::string draw_text(const Schedule& schedule, const Simulation& simulation, const Terminal& terminal = {},
                      const Ledger& ledger = {}, const std::string& unit = "units");

/// Returns the same as an SVG figure.
std::string draw_svg(const Schedule& schedule, const Simulation& simulation, const std::string& title,
                     const std::string& unit);

/// Returns a figure of weights and time, in which each version of the weights has a colour. Below each rank, there is a
/// bar for every version that the rank keeps: from the update that makes the version until a newer one exists and no
/// action uses the old one any more.
std::string draw_versions_svg(const Schedule& schedule, const Simulation& simulation, const Ledger& ledger,
                              const std::string& title, const std::string& unit);

}  // namespace stagecoach
