#include "parallel/drawing/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace stagecoach {

std::vector<Tick> nice_ticks(double low, double high, int count, double min_step) {
  if (!(high > low)) {
    return {{low, fmt::format("{:.4g}", low)}};
  }
  const double rough = std::max((high - low) / std::max(count, 1), min_step);
  const double power = std::pow(10, std::floor(std::log10(rough)));
  const double lead = rough / power;
  const double step = power * (lead < 1.41 ? 1 : lead < 3.16 ? 2 : lead < 7.07 ? 5 : 10);
  const int digits = std::max(static_cast<int>(-std::floor(std::log10(step) + 1e-9)), 0);
  const bool is_long = digits > 6 || std::max(std::abs(low), std::abs(high)) >= 1e6;
  std::vector<Tick> ticks;
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + 1e-9 * step && ticks.size() < 100; ++i) {
    const double value = i == 0 ? 0 : i * step;  // not -0
    ticks.push_back({value, is_long ? fmt::format("{:.3g}", value) : fmt::format("{:.{}f}", value, digits)});
  }
  return ticks;
}

Axis::Axis(double low, double high, double first_pixel, double last_pixel, AxisKind kind)
    : low_(low), high_(high), first_pixel_(first_pixel), last_pixel_(last_pixel), kind_(kind) {}

double Axis::at(double value) const {
  if (!(high_ > low_)) {
    return (first_pixel_ + last_pixel_) / 2;
  }
  const double share = kind_ == AxisKind::logarithmic ? std::log(value / low_) / std::log(high_ / low_)
                                                      : (value - low_) / (high_ - low_);
  return first_pixel_ + share * (last_pixel_ - first_pixel_);
}

void Axis::draw_below(Svg& svg, const Svg::Box& plot, const std::vector<Tick>& ticks, const std::string& name) const {
  for (const Tick& tick : ticks) {
    svg.line(at(tick.value), plot.top, at(tick.value), plot.bottom(), Svg::kGridColour);
    svg.text(at(tick.value), plot.bottom() + 14, tick.label, {.anchor = Svg::Anchor::middle});
  }
  svg.line(plot.left, plot.bottom(), plot.right(), plot.bottom(), Svg::kAxisColour);
  svg.text(plot.left + plot.width / 2, plot.bottom() + 30, name, {.anchor = Svg::Anchor::middle});
}

void Axis::draw_left(Svg& svg, const Svg::Box& plot, const std::vector<Tick>& ticks) const {
  for (const Tick& tick : ticks) {
    svg.line(plot.left, at(tick.value), plot.right(), at(tick.value), Svg::kGridColour);
    svg.text(plot.left - 6, at(tick.value) + 4, tick.label, {.anchor = Svg::Anchor::end});
  }
  svg.line(plot.left, plot.top, plot.left, plot.bottom(), Svg::kAxisColour);
}

}  // namespace stagecoach
