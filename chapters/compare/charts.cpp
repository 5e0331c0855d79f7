#include "chapters/compare/charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace stagecoach {
namespace {

constexpr double kTitleGap = 8;
constexpr std::size_t kFewPoints = 20;  // at most so many points are also drawn as dots

/// The minimum and maximum of the finite values added so far, if any.
class Range {
 public:
  void add(double value) {
    if (std::isfinite(value)) {
      low_ = any_ ? std::min(low_, value) : value;
      high_ = any_ ? std::max(high_, value) : value;
      any_ = true;
    }
  }
  bool any() const { return any_; }
  double low() const { return low_; }
  double high() const { return high_; }

 private:
  bool any_ = false;
  double low_ = 0;
  double high_ = 0;
};

void draw_title(Svg& svg, const Svg::Box& plot, const std::string& title) {
  svg.text(plot.left, plot.top - kTitleGap, title, {.bold = true});
}

/// Returns the ticks of a logarithmic axis: the values themselves, which are few, such as powers of two.
std::vector<Tick> ticks_at(const Svg::Points& points) {
  std::vector<Tick> ticks;
  for (const auto& [x, y] : points) {
    ticks.push_back({x, fmt::format("{:g}", x)});
  }
  return ticks;
}

void draw_curve(Svg& svg, const Svg::Points& values, const Stroke& stroke, const Axis& x, const Axis& y) {
  Svg::Points unbroken;
  const auto end_line = [&] {
    if (unbroken.size() > 1) {
      svg.curve(unbroken, stroke);
    }
    if (unbroken.size() == 1 || values.size() <= kFewPoints) {
      for (const auto& [at, value] : unbroken) {
        svg.dot(at, value, 3, stroke.colour);
      }
    }
    unbroken.clear();
  };
  for (const auto& [at, value] : values) {
    if (std::isfinite(value)) {
      unbroken.emplace_back(x.at(at), y.at(value));
    } else {
      end_line();
    }
  }
  end_line();
}

}  // namespace

void draw_curves(Svg& svg, const Svg::Box& plot, const CurveAxes& axes, const std::vector<Svg::Points>& curves) {
  Range across;
  Range up;
  for (const Svg::Points& points : curves) {
    for (const auto& [x, y] : points) {
      across.add(x);
      up.add(y);
    }
  }
  draw_title(svg, plot, axes.title);
  if (!up.any()) {
    svg.text(plot.left + plot.width / 2, plot.top + plot.height / 2, "no finite value",
             {.anchor = Svg::Anchor::middle});
    return;
  }
  if (axes.y_from_zero) {
    up.add(0);
  }
  const double margin = 0.04 * (up.high() - up.low());  // keeps curves off the frame
  const double low = up.low() - (axes.y_from_zero ? 0 : margin);
  const Axis x(across.low(), across.high(), plot.left + 8, plot.right() - 8, axes.x_kind);
  const Axis y(low, up.high() + margin, plot.bottom(), plot.top);
  x.draw_below(svg, plot, axes.x_kind == AxisKind::logarithmic ? ticks_at(curves.front()) : x.ticks(), axes.x_name);
  y.draw_left(svg, plot, y.ticks());
  for (std::size_t i = 0; i < curves.size(); ++i) {
    draw_curve(svg, curves[i], curve_stroke(i), x, y);
  }
}

void draw_curve_legend(Svg& svg, const Svg::Box& area, const std::vector<std::string>& names) {
  constexpr double kSample = 34;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const double y = area.top + kLegendRow * (static_cast<double>(i) + 0.5);
    svg.curve({{area.left, y}, {area.left + kSample, y}}, curve_stroke(i));
    svg.text(area.left + kSample + 8, y + 4, names[i], {}, area.width - kSample - 8);
  }
}

void draw_bars(Svg& svg, const Svg::Box& plot, const std::string& title, double row, std::vector<ChartBar> bars) {
  for (ChartBar& bar : bars) {
    for (std::optional<double>* length : {&bar.value, &bar.mark}) {
      *length = length->has_value() && std::isfinite(**length) ? *length : std::nullopt;
    }
  }
  Range values;
  values.add(0);
  double label_room = 0;
  for (const ChartBar& bar : bars) {
    values.add(bar.value.value_or(0));
    values.add(bar.mark.value_or(0));
    label_room = std::max(label_room, Svg::width_of(bar.label) + 6);
  }
  draw_title(svg, plot, title);
  const Axis x(0, values.high(), plot.left, plot.right() - label_room);
  x.draw_below(svg, plot, x.ticks(3), "");
  for (std::size_t i = 0; i < bars.size(); ++i) {
    const ChartBar& bar = bars[i];
    const double top = plot.top + row * static_cast<double>(i) + 0.2 * row;
    const double height = 0.6 * row;
    const auto width = [&](double value) { return values.high() > 0 ? x.at(value) - plot.left : 0; };
    if (bar.value) {
      svg.box({plot.left, top + 2, width(*bar.value), height - 4}, bar.colour);
    }
    if (bar.mark) {
      svg.outline({plot.left, top, width(*bar.mark), height}, "#222222", bar.mark_title);
    }
    const double end = std::max(width(bar.value.value_or(0)), width(bar.mark.value_or(0)));
    svg.text(plot.left + end + 5, top + height - 4, bar.label);
  }
}

void draw_bar_groups(Svg& svg, const Svg::Box& plot, const std::string& title, double row,
                     const std::vector<BarGroup>& groups) {
  constexpr double kWidest = 16;
  Range all;
  std::size_t most = 1;
  double label_room = 0;
  for (const BarGroup& group : groups) {
    std::for_each(group.values.begin(), group.values.end(), [&](double value) { all.add(value); });
    most = std::max(most, group.values.size());
    label_room = std::max(label_room, Svg::width_of(group.label) + 6);
  }
  draw_title(svg, plot, title);
  const double width = std::min(kWidest, (plot.width - label_room) / static_cast<double>(most));
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const BarGroup& group = groups[i];
    const double bottom = plot.top + row * static_cast<double>(i + 1) - 4;
    double left = plot.left;
    for (std::size_t v = 0; v < group.values.size(); ++v, left += width) {
      const double height = all.high() > 0 ? (row - 8) * group.values[v] / all.high() : 0;
      svg.box({left, bottom - height, 0.85 * width, height}, group.colour, 1, group.titles[v]);
    }
    svg.line(plot.left, bottom, left, bottom, Svg::kAxisColour);
    svg.text(left + 4, bottom - 2, group.label);
  }
}

}  // namespace stagecoach
