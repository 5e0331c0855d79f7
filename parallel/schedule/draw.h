#pragma once
/// @file
/// Timelines of a schedule: for a terminal and as a figure.

#include <string>

#include "parallel/drawing/terminal.h"
#include "parallel/schedule/ledger.h"
#include "parallel/schedule/schedule.h"
#include "parallel/schedule/simulate.h"

namespace stagecoach {

/// One line per rank; time runs to the right. An action shows its letter and its micro-batch, and where a rank has
/// several stages a small letter for which of them (its chunk): "F12b". If that does not fit into the terminal's width,
/// the time goes on in further blocks of lines (see parallel/drawing/timeline.h). Where there is a ledger, colours get
/// lighter and darker with its versions, otherwise with the chunks.
std::string draw_text(const Schedule& schedule, const Simulation& simulation, const Terminal& terminal = {},
                      const Ledger& ledger = {});

/// The same as an SVG figure. `unit` is that of the simulation's times.
std::string draw_svg(const Schedule& schedule, const Simulation& simulation, const std::string& title,
                     const std::string& unit);

/// Weights and time together: a figure in which a colour is a version of the weights, and under each rank is a bar for
/// every version that it keeps, from the update that makes it until a newer one is there and no action uses it any
/// more.
std::string draw_versions_svg(const Schedule& schedule, const Simulation& simulation, const Ledger& ledger,
                              const std::string& title, const std::string& unit);

}  // namespace stagecoach
