#pragma once
/// @file
/// Axes: from values to pixels, with ticks at numbers that people can count in.

#include <string>
#include <vector>

#include "parallel/drawing/svg.h"

namespace stagecoach {

struct Tick {
  double value;
  std::string label;
};

/// Ticks at the multiples of 1, 2 or 5 times a power of ten that lie between `low` and `high`: about `count`, with the
/// digits that tell them apart, and not closer to each other than `least_step`. Both must be finite, and low <= high;
/// of equal values that one.
std::vector<Tick> nice_ticks(double low, double high, int count = 5, double least_step = 0);

enum class AxisKind { linear, whole_numbers, logarithmic };

/// One direction of a chart: a range of values beside a range of pixels.
class Axis {
 public:
  /// Of a logarithmic axis `low` must be positive.
  Axis(double low, double high, double first_pixel, double last_pixel, AxisKind kind = AxisKind::linear);

  /// The pixel of a value; of an axis whose values are all equal its middle.
  double at(double value) const;
  std::vector<Tick> ticks(int count = 5) const {
    return nice_ticks(low_, high_, count, kind_ == AxisKind::whole_numbers ? 1 : 0);
  }

  /// Draws the grid's vertical lines over `plot` with their labels below it, and below those the axis's name.
  void draw_below(Svg& svg, const Svg::Box& plot, const std::vector<Tick>& ticks, const std::string& name) const;
  /// Draws the grid's horizontal lines over `plot` with their labels at its left.
  void draw_left(Svg& svg, const Svg::Box& plot, const std::vector<Tick>& ticks) const;

 private:
  double low_;
  double high_;
  double first_pixel_;
  double last_pixel_;
  AxisKind kind_;
};

}  // namespace stagecoach
