#pragma once
/// @file
/// Charts as parts of a figure: curves and bars.

#include <optional>
#include <string>
#include <vector>

#include "parallel/drawing/axis.h"
#include "parallel/drawing/svg.h"

namespace stagecoach {

struct CurveAxes {
  std::string title;   ///< above the chart
  std::string x_name;  ///< below the x-axis
  AxisKind x_kind = AxisKind::linear;
  bool y_from_zero = false;
};

/// Draws curve i in the stroke curve_stroke(i) over `plot`, with ticks on both axes. A value that is not finite leaves
/// a gap. A point between gaps is drawn as a dot, and so is each point of a short curve.
void draw_curves(Svg& svg, const Svg::Box& plot, const CurveAxes& axes, const std::vector<Svg::Points>& curves);

/// The height of a line in a curve legend, in pixels.
inline constexpr double kLegendRow = 18;
/// Draws one line per curve, its stroke and its name, from the top of `area` down.
void draw_curve_legend(Svg& svg, const Svg::Box& area, const std::vector<std::string>& names);

/// A bar, with an optional outline for its expected value.
struct ChartBar {
  std::optional<double> value;
  std::string label;                ///< written after the bar
  std::optional<double> mark = {};  ///< an outline from 0 to here
  std::string mark_title = {};      ///< shown when the pointer is on the outline
  const char* colour = kBlue.svg;
};

/// Draws one bar per row, each row `row` pixels high, from the top of `plot` down, with a title above. What is not
/// finite is left out. The axis begins at 0.
void draw_bars(Svg& svg, const Svg::Box& plot, const std::string& title, double row, std::vector<ChartBar> bars);

/// A group of vertical bars, side by side.
struct BarGroup {
  std::vector<double> values = {};
  std::vector<std::string> titles = {};  ///< one per value, shown when the pointer is on the bar
  std::string label;                     ///< written after the last bar
  const char* colour = kBlue.svg;
};

/// Draws one group per row, like draw_bars, all on one scale that begins at 0.
void draw_bar_groups(Svg& svg, const Svg::Box& plot, const std::string& title, double row,
                     const std::vector<BarGroup>& groups);

}  // namespace stagecoach
