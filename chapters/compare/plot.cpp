// Draws a comparison as a figure (comparison.h).

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "chapters/compare/charts.h"
#include "chapters/compare/coinciding_runs.h"
#include "chapters/compare/comparison.h"
#include "core/base/throw_if.h"
#include "core/base/units.h"
#include "parallel/drawing/svg.h"

namespace stagecoach {
namespace {

// Lengths in pixels.
constexpr double kMargin = 20;
constexpr double kWidth = 980;
constexpr double kRow = 32;
constexpr double kTop = 40;
constexpr double kNames = 170;
constexpr double kPanelGap = 24;
constexpr double kPanel = (kWidth - 2 * kMargin - kNames - 3 * kPanelGap) / 4;
constexpr double kCurvesHeight = 220;

/// A loss beyond this value is not drawn: training has diverged, and the point would flatten all other curves.
constexpr double kLargestLoss = 1e6;

/// The bars: four panels beside the names of the runs.
class BarPanels {
 public:
  BarPanels(const Comparison& comparison, const std::vector<const char*>& colours, Svg& svg)
      : comparison_(comparison), colours_(colours), svg_(svg) {}

  double height() const { return kRow * static_cast<double>(comparison_.runs.size()); }

  void draw() {
    draw_names();
    draw_bars(svg_, panel(0), "seconds per epoch", kRow, bars([](const RunSummary& run) {
                return ChartBar{run.seconds, fmt::format("{:.3f}", run.seconds), run.predicted_seconds,
                                fmt::format("predicted: {:.3f} s", run.predicted_seconds.value_or(0))};
              }));
    draw_bars(svg_, panel(1), "speed-up", kRow, bars([](const RunSummary& run) {
                return ChartBar{run.speed_up, run.speed_up ? fmt::format("{:.2f}", *run.speed_up) : "-",
                                run.ideal_speed_up, fmt::format("ideal: {:.2f}", run.ideal_speed_up.value_or(0))};
              }));
    draw_bars(svg_, panel(2), "idle, in %", kRow, bars([](const RunSummary& run) {
                const auto percent = [](const std::optional<double>& share) {
                  return share ? std::optional(100 * *share) : std::nullopt;
                };
                return ChartBar{percent(run.idle), run.idle ? fmt::format("{:.1f}", 100 * *run.idle) : "-",
                                percent(run.predicted_idle),
                                fmt::format("predicted: {:.1f}%", 100 * run.predicted_idle.value_or(0))};
              }));
    draw_memory();
  }

 private:
  Svg::Box panel(int i) const { return {kMargin + kNames + (kPanel + kPanelGap) * i, kTop, kPanel, height()}; }

  template <class BarOf>
  std::vector<ChartBar> bars(const BarOf& bar_of) const {
    std::vector<ChartBar> all;
    for (std::size_t i = 0; i < comparison_.runs.size(); ++i) {
      all.push_back(bar_of(comparison_.runs[i]));
      all.back().colour = colours_[i];
    }
    return all;
  }

  void draw_names() {
    for (std::size_t i = 0; i < comparison_.runs.size(); ++i) {
      const RunSummary& run = comparison_.runs[i];
      const double top = kTop + kRow * static_cast<double>(i);
      svg_.box({kMargin, top + 7, 6, kRow - 14}, colours_[i]);
      const std::string remark = i == comparison_.baseline_of(i) ? "baseline" : run.comparable ? "" : "not comparable";
      svg_.text(kMargin + 12, top + (remark.empty() ? 20 : 14), run.name, {}, kNames - 18);
      svg_.text(kMargin + 12, top + 26, remark, {.size = 9, .colour = Svg::kAxisColour});
    }
  }

  void draw_memory() {
    std::vector<BarGroup> groups;
    for (std::size_t i = 0; i < comparison_.runs.size(); ++i) {
      const std::vector<std::int64_t>& peaks = comparison_.runs[i].peak_bytes;
      BarGroup group{.label = "-", .colour = colours_[i]};
      for (std::size_t rank = 0; rank < peaks.size(); ++rank) {
        group.values.push_back(static_cast<double>(peaks[rank]) / kMiB);
        group.titles.push_back(fmt::format("rank {}: {:.1f} MiB", rank, group.values.back()));
        group.label = fmt::format("{:.1f}", *std::max_element(group.values.begin(), group.values.end()));
      }
      groups.push_back(std::move(group));
    }
    draw_bar_groups(svg_, panel(3), "memory per rank, peak, in MiB", kRow, groups);
    svg_.text(panel(3).left, panel(3).bottom() + 14, "the number is the largest", {.colour = Svg::kAxisColour});
  }

  const Comparison& comparison_;
  const std::vector<const char*>& colours_;
  Svg& svg_;
};

/// Returns the legend of a group, such as "gpipe, 1f1b, zb-h1: identical bytes".
std::string name_of(const CoincidingRuns& same, const std::vector<RunSummary>& runs) {
  constexpr std::size_t kMaxNames = 8;
  std::string name;
  for (std::size_t i = 0; i < std::min(same.runs.size(), kMaxNames); ++i) {
    name += (i == 0 ? "" : ", ") + runs[same.runs[i]].name;
  }
  if (same.runs.size() > kMaxNames) {
    name += fmt::format(" and {} more", same.runs.size() - kMaxNames);
  }
  return same.runs.size() == 1 ? name : name + (same.same_weights ? ": identical bytes" : ": losses coincide");
}

Svg::Points points_of(const EpochCurve& curve) {
  Svg::Points points;
  for (const auto& [epoch, value] : curve) {
    points.emplace_back(static_cast<double>(epoch),
                        std::abs(value) <= kLargestLoss ? value : std::numeric_limits<double>::quiet_NaN());
  }
  return points;
}

/// Draws both charts of curves and their legend, from `top` down. Returns their height.
double draw_training(Svg& svg, const std::vector<RunSummary>& runs, const std::vector<CoincidingRuns>& groups,
                     double top) {
  std::vector<Svg::Points> losses;
  std::vector<Svg::Points> accuracies;
  std::vector<std::string> names;
  for (const CoincidingRuns& group : groups) {
    const RunSummary& first = runs[group.runs.front()];
    losses.push_back(points_of(first.losses));
    accuracies.push_back(points_of(first.test_accuracies));
    names.push_back(name_of(group, runs));
  }
  constexpr double kAxis = 40;  // width of the axis labels
  constexpr double kHalf = (kWidth - 2 * kMargin - 2 * kAxis - kPanelGap) / 2;
  draw_curves(svg, {kMargin + kAxis, top, kHalf, kCurvesHeight},
              {.title = "training loss", .x_name = "epoch", .x_kind = AxisKind::whole_numbers}, losses);
  draw_curves(svg, {kMargin + 2 * kAxis + kHalf + kPanelGap, top, kHalf, kCurvesHeight},
              {.title = "test accuracy", .x_name = "epoch", .x_kind = AxisKind::whole_numbers}, accuracies);
  const Svg::Box legend{kMargin, top + kCurvesHeight + 44, kWidth - 2 * kMargin,
                        kLegendRow * static_cast<double>(names.size())};
  draw_curve_legend(svg, legend, names);
  return legend.bottom() - top;
}

}  // namespace

std::string plot_svg(const Comparison& comparison) {
  throw_if<UsageError>(comparison.are_plans, "--svg draws runs, and {} is a plan; leave out --svg",
                       comparison.runs.front().name);
  const std::vector<CoincidingRuns> groups = coinciding_runs(comparison.runs);
  std::vector<const char*> colours(comparison.runs.size());
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const std::size_t run : groups[g].runs) {
      colours[run] = curve_stroke(g).colour;
    }
  }
  Svg svg;
  BarPanels bars(comparison, colours, svg);
  bars.draw();
  const double note = kTop + bars.height() + 36;
  svg.text(kMargin, note,
           "Times, speed-up and idle: medians without the first epoch. An outline is the predicted time, the ideal "
           "speed-up over one device, or the predicted idle share.",
           {.colour = Svg::kAxisColour});
  const double curves = note + 36;
  return svg.str(kWidth, curves + draw_training(svg, comparison.runs, groups, curves) + 12);
}

}  // namespace stagecoach
