#include <algorithm>

#include "parallel/drawing/axis.h"
#include "parallel/drawing/svg.h"
#include "parallel/drawing/timeline.h"

namespace stagecoach {
namespace {

constexpr double kWidth = 960;
constexpr double kWidestTimeline = 6000;
constexpr double kRight = 14;
constexpr double kTop = 50;  // below the title and the legend
constexpr double kGap = 3;   // between rows

double label_width(const TimelineBar& bar) { return Svg::width_of(bar.label) + 4; }

/// Returns the necessary width of the plot.
double plot_width(const TimelineChart& chart, double left) {
  double width = kWidth - left - kRight;
  for (const TimelineRow& row : chart.rows) {
    for (const TimelineBar& bar : row.bars) {
      if (chart.shows_all_labels && bar.end > bar.begin) {
        width = std::max(width, label_width(bar) * chart.length / (bar.end - bar.begin));
      }
    }
  }
  return std::min(width, kWidestTimeline);
}

void draw_legend(Svg& svg, const TimelineChart& chart) {
  constexpr double kBaseline = 38;
  constexpr double kSample = 11;
  double x = 10;
  const auto add = [&](const std::string& name, const char* colour) {
    svg.box({x, kBaseline - 9, kSample, kSample}, colour);
    svg.text(x + kSample + 4, kBaseline, name);
    x += kSample + 18 + Svg::width_of(name);
  };
  for (const LegendEntry& entry : chart.legend) {
    add(entry.name, entry.colour.svg);
  }
  if (!chart.idle_name.empty()) {
    add(chart.idle_name, kIdleGrey);
  }
  svg.text(x, kBaseline, chart.note);
}

/// Draws a row into `area`, which is as wide as the time axis.
void draw_row(Svg& svg, const TimelineRow& row, const Svg::Box& area, const Axis& time) {
  const double size = std::min(Svg::kFontSize, area.height - 1);
  const double baseline = area.top + area.height / 2 + 0.36 * size;
  svg.text(10, baseline, row.name);
  if (row.shows_idle) {
    svg.box(area, kIdleGrey);
  }
  for (const TimelineBar& bar : row.bars) {
    const Svg::Box box{time.at(bar.begin), area.top, time.at(bar.end) - time.at(bar.begin), area.height};
    if (box.width <= 0) {
      continue;
    }
    svg.box(box, "#ffffff");  // white below the lighter shade, which is translucent
    svg.box({box.left, box.top, std::max(box.width - 1, box.width / 2), box.height}, bar.colour.svg,
            bar.is_light ? 0.45 : 1, bar.title);
    if (label_width(bar) - 3 <= box.width) {
      svg.text(box.left + box.width / 2, baseline, bar.label, {.anchor = Svg::Anchor::middle, .size = size});
    }
  }
}

}  // namespace

std::string timeline_svg(const TimelineChart& chart) {
  double left = 40;
  double height = 0;
  for (const TimelineRow& row : chart.rows) {
    left = std::max(left, Svg::width_of(row.name) + 20);
    height += row.height;
  }
  const Svg::Box plot{left, kTop, plot_width(chart, left), height};
  const Axis time(0, chart.length, plot.left, plot.right());
  Svg svg;
  svg.text(10, 20, chart.title, {.size = 14});
  draw_legend(svg, chart);
  time.draw_below(svg, plot, time.ticks(10), "time (" + chart.unit + ")");
  double top = plot.top;
  for (const TimelineRow& row : chart.rows) {
    const double end = time.at(row.end.value_or(chart.length));
    draw_row(svg, row, {plot.left, top, end - plot.left, row.height - kGap}, time);
    top += row.height;
  }
  return svg.str(plot.right() + kRight, plot.bottom() + 38);
}

}  // namespace stagecoach
