#pragma once
/// @file
/// Axes, which map values to pixels, with ticks at round numbers.

#include <string>
#include <vector>

#include "parallel/drawing/svg.h"

namespace stagecoach {

struct Tick {
  double value;
  std::string label;
};

/// Returns about `count` ticks between `low` and `high`, at multiples of 1, 2 or 5 times a power of ten, at least
/// `min_step` apart, with as many digits as needed to distinguish them. Both bounds must be finite, and low <= high;
/// if they are equal, returns one tick.
std::vector<Tick> nice_ticks(double low, double high, int count = 5, double min_step = 0);

enum class AxisKind { linear, whole_numbers, logarithmic };

/// One direction of a chart: maps a range of values to a range of pixels.
class Axis {
 public:
  /// For a logarithmic axis `low` must be positive.
  Axis(double low, double high, double first_pixel, double last_pixel, AxisKind kind = AxisKind::linear);

  /// Returns the pixel of a value; the middle of the axis if its range is a single value.
  double at(double value) const;
  std::vector<Tick> ticks(int count = 5) const {
    return nice_ticks(low_, high_, count, kind_ == AxisKind::whole_numbers ? 1 : 0);
  }

  /// Draws the grid's vertical lines over `plot`, their labels below it, and the axis's name below the labels.
  void draw_below(Svg& svg, const Svg::Box& plot, const std::vector<Tick>& ticks, const std::string& name) const;
  /// Draws the grid's horizontal lines over `plot` with their labels to its left.
  void draw_left(Svg& svg, const Svg::Box& plot, const std::vector<Tick>& ticks) const;

 private:
  double low_;
  double high_;
  double first_pixel_;
  double last_pixel_;
  AxisKind kind_;
};

}  // namespace stagecoach
