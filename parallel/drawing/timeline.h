#pragma once
/// @file
/// A timeline: rows of bars over one axis of time, drawn as an SVG figure or as text.

#include <optional>
#include <string>
#include <vector>

#include "parallel/drawing/palette.h"
#include "parallel/drawing/terminal.h"

namespace stagecoach {

/// Something that takes time.
struct TimelineBar {
  double begin = 0;
  double end = 0;
  Colour colour = kSkyBlue;
  std::string label = {};  ///< written into the bar where there is room
  std::string title = {};  ///< shown when the pointer is on the bar of a figure
  bool is_light = false;   ///< in a lighter shade
  char mark = '-';         ///< as text, stands for a label without room
  char fill = '-';         ///< as text, what follows the label
};

struct TimelineRow {
  std::string name = {};
  std::vector<TimelineBar> bars = {};  ///< in the order of time, none over another
  std::optional<double> end = {};      ///< the row is empty after this time
  bool shows_idle = true;              ///< whether an empty moment is idle time
  double height = 24;                  ///< in pixels, of which 3 are left free
};

struct LegendEntry {
  std::string name;
  Colour colour;
};

struct TimelineChart {
  std::string title = {};
  std::string unit = {};  ///< of time
  double length = 0;
  std::vector<TimelineRow> rows = {};
  std::vector<LegendEntry> legend = {};
  std::string idle_name = {};  ///< what the legend calls an empty moment; empty: nothing
  std::string note = {};       ///< what else the legend says
  /// Whether every label must be readable. Then a figure may be wider, and text may take several blocks of lines.
  bool shows_all_labels = false;
};

/// A figure with a legend and an axis.
std::string timeline_svg(const TimelineChart& chart);

/// A line per row, as wide as the terminal at most, and a legend; a dot is an idle moment. If all labels are to be
/// readable and one line is too short for that, the time goes on in further blocks of lines, each of which begins with
/// its time. Where that would take too many blocks there is one, and labels without room are reduced to their marks.
std::string timeline_text(const TimelineChart& chart, const Terminal& terminal);

}  // namespace stagecoach
