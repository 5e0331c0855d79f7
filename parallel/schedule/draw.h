#pragma once
/// @file
/// Timelines of a schedule: for a terminal, as a picture, and as a trace.

#include <string>

#include "parallel/schedule/ledger.h"
#include "parallel/schedule/schedule.h"
#include "parallel/schedule/simulate.h"

namespace stagecoach {

enum class Colours { none, terminal };

/// A line a rank; time runs to the right, `columns` wide at most. An action shows its letter, and its micro-batch where
/// there is room; a dot is an idle moment. With colours an action has the shade of its version in `ledger`, or, without
/// one, of its stage among those of the rank.
std::string draw_text(const Schedule& schedule, const Simulation& simulation, int columns = 100,
                      Colours colours = Colours::none, const Ledger& ledger = {});

/// The same as an SVG picture with a legend of the idle share.
std::string draw_svg(const Schedule& schedule, const Simulation& simulation, const std::string& title);

/// Weights and time together: a picture in which a colour is a version of the weights, and under each rank is a bar for
/// every version that it keeps, from the update that makes it until a newer one is there and no action uses it any
/// more.
std::string draw_versions_svg(const Schedule& schedule, const Simulation& simulation, const Ledger& ledger,
                              const std::string& title);

}  // namespace stagecoach
