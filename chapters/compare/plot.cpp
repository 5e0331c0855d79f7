#include "chapters/compare/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "chapters/compare/loss_panel.h"
#include "chapters/compare/svg.h"

namespace stagecoach {
namespace {

// In pixels. Both panels are as high as the bars need, but not lower than a diagram needs.
constexpr double kRow = 38;
constexpr double kLeastHeight = 220;

/// The time of an epoch, a row a run: its name, and below it the bar.
std::string time_panel(const std::vector<RunSummary>& runs) {
  constexpr double kLongest = kPanelWidth - 2 * kPanelMargin;
  double longest = 0;
  for (const RunSummary& run : runs) {
    longest = std::max({longest, run.seconds, run.predicted_seconds.value_or(0)});
  }
  const double scale = longest > 0 ? kLongest / longest : 0;
  std::string svg = fmt::format("<text x=\"20\" y=\"24\" font-weight=\"bold\">seconds an epoch</text>\n");
  const auto out = std::back_inserter(svg);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const RunSummary& run = runs[i];
    const double top = kPanelTop + kRow * static_cast<double>(i);
    const double predicted = run.predicted_seconds.value_or(0) * scale;
    fmt::format_to(out, "<text x=\"20\" y=\"{:.1f}\">{}</text>\n", top + 8, svg_text(run.name));
    fmt::format_to(out, "<rect x=\"20\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"12\" fill=\"{}\"/>\n", top + 15,
                   run.seconds * scale, run_colour(i));
    if (run.predicted_seconds) {
      fmt::format_to(out,
                     "<rect x=\"20\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"16\" fill=\"none\" stroke=\"#222222\">"
                     "<title>predicted: {:.3f} s</title></rect>\n",
                     top + 13, predicted, *run.predicted_seconds);
    }
    fmt::format_to(out, "<text x=\"{:.1f}\" y=\"{:.1f}\">{:.3f}</text>\n",
                   26 + std::max(run.seconds * scale, predicted), top + 25, run.seconds);
  }
  return svg;
}

std::string legend(const Comparison& comparison, double top) {
  std::string svg;
  for (std::size_t i = 0; i < comparison.runs.size(); ++i) {
    const RunSummary& run = comparison.runs[i];
    const double y = top + 20 * static_cast<double>(i);
    const std::string remark = i == comparison.baseline ? " (baseline)" : run.comparable ? "" : " (not comparable)";
    svg += fmt::format(
        "<path d=\"M20 {:.1f}H50\" stroke=\"{}\" stroke-width=\"4\"/><text x=\"58\" y=\"{:.1f}\">{}{}"
        "</text>\n",
        y, run_colour(i), y + 4, svg_text(run.name), remark);
  }
  return svg + fmt::format(
                   "<text x=\"20\" y=\"{:.1f}\">Medians without the first epoch; an outline is what was "
                   "predicted. Of curves that coincide, the first is the widest.</text>\n",
                   top + 4 + 20 * static_cast<double>(comparison.runs.size()));
}

}  // namespace

std::string plot_svg(const Comparison& comparison) {
  const auto count = static_cast<double>(comparison.runs.size());
  const double height = std::max(kLeastHeight, kRow * count);
  const double legend_top = kPanelTop + height + 60;
  const std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0f} {:.0f}\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
      2 * kPanelWidth, legend_top + 20 * (count + 1));
  return svg + time_panel(comparison.runs) + loss_panel(comparison.runs, height) + legend(comparison, legend_top) +
         "</svg>\n";
}

}  // namespace stagecoach
