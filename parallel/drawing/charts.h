#pragma once
/// @file
/// Charts as parts of a figure: curves over an axis, and bars.

#include <optional>
#include <string>
#include <vector>

#include "parallel/drawing/axis.h"
#include "parallel/drawing/svg.h"

namespace stagecoach {

struct CurveAxes {
  std::string title;   ///< above the chart
  std::string x_name;  ///< below its axis
  AxisKind x_kind = AxisKind::linear;
  bool y_from_zero = false;
};

/// Draws curve i in the stroke curve_stroke(i) over `plot`, with ticks on both axes. A value that is not finite is a
/// gap; a point between gaps is a dot, and so is each point of a short curve.
void draw_curves(Svg& svg, const Svg::Box& plot, const CurveAxes& axes, const std::vector<Svg::Points>& curves);

/// A line per curve: its stroke and its name, from the top of `place` down, kLegendRow pixels each.
inline constexpr double kLegendRow = 18;
void draw_curve_legend(Svg& svg, const Svg::Box& place, const std::vector<std::string>& names);

/// A bar, and beside it what was expected of it.
struct ChartBar {
  std::optional<double> value;
  std::string label;                ///< written after the bar
  std::optional<double> mark = {};  ///< an outline from 0 to here
  std::string mark_title = {};      ///< shown when the pointer is on the outline
  const char* colour = kBlue.svg;
};

/// A bar per row, each `row` pixels high, from the top of `plot` down, with a title above. The axis begins at 0.
void draw_bars(Svg& svg, const Svg::Box& plot, const std::string& title, double row, const std::vector<ChartBar>& bars);

/// Upright bars, side by side.
struct BarGroup {
  std::vector<double> values = {};
  std::vector<std::string> titles = {};  ///< one per value, shown when the pointer is on the bar
  std::string label;                     ///< written after the last bar
  const char* colour = kBlue.svg;
};

/// A group per row, all on one scale that begins at 0, like draw_bars.
void draw_bar_groups(Svg& svg, const Svg::Box& plot, const std::string& title, double row,
                     const std::vector<BarGroup>& groups);

}  // namespace stagecoach
