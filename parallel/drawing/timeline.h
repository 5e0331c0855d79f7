#pragma once
/// @file
/// A timeline: rows of bars over one time axis, drawn as an SVG figure or as text.

#include <optional>
#include <string>
#include <vector>

#include "parallel/drawing/palette.h"
#include "parallel/drawing/terminal.h"

namespace stagecoach {

/// An interval of time in a row.
struct TimelineBar {
  double begin = 0;
  double end = 0;
  Colour colour = kSkyBlue;
  std::string label = {};  ///< written into the bar if there is room
  std::string title = {};  ///< shown when the pointer is on the bar of a figure
  bool is_light = false;   ///< in a lighter shade
  char mark = '-';         ///< in text, replaces a label that does not fit
  char fill = '-';         ///< in text, fills the bar after the label
};

struct TimelineRow {
  std::string name = {};
  std::vector<TimelineBar> bars = {};  ///< in order of time, without overlaps
  std::optional<double> end = {};      ///< the row is empty after this time
  bool shows_idle = true;              ///< whether gaps are idle time
  double height = 24;                  ///< in pixels, of which 3 are left empty
};

struct LegendEntry {
  std::string name;
  Colour colour;
};

struct TimelineChart {
  std::string title = {};
  std::string unit = {};  ///< of time; text shows "s" in ms
  double length = 0;
  std::vector<TimelineRow> rows = {};
  std::vector<LegendEntry> legend = {};
  std::string idle_name = {};  ///< what the legend calls a gap; empty: no entry
  std::string note = {};       ///< additional text in the legend
  /// Whether every label must be readable. If so, a figure may be wider, and text may take several blocks of lines.
  bool shows_all_labels = false;
};

/// Returns an SVG figure with a legend and an axis.
std::string timeline_svg(const TimelineChart& chart);

/// Returns one line per row, at most as wide as the terminal, below an axis and above a legend. A number of the axis
/// begins above its moment, a dot is an idle moment, and with colours a bar begins darker if it touches one like it. If
/// all labels must be readable and one line is too short for them, the timeline continues in further blocks of lines,
/// each with its axis. If that would take too many blocks, there is only one, and labels that do not fit are reduced to
/// their marks.
std::string timeline_text(const TimelineChart& chart, const Terminal& terminal);

}  // namespace stagecoach
