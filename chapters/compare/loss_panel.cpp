#include "chapters/compare/loss_panel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "chapters/compare/svg.h"

namespace stagecoach {
namespace {

/// A loss beyond this is no point of a curve: training has diverged, and would flatten all other curves.
constexpr double kLargestLoss = 1e6;

/// Where the points of the curves lie on the picture.
class Axes {
 public:
  Axes(const std::vector<RunSummary>& runs, double height) : bottom_(kPanelTop + height) {
    for (const RunSummary& run : runs) {
      for (const auto& [epoch, loss] : run.losses) {
        first_ = any_ ? std::min(first_, epoch) : epoch;
        last_ = any_ ? std::max(last_, epoch) : epoch;
        any_ = true;
        if (is_drawn(loss)) {
          low_ = any_loss_ ? std::min(low_, loss) : loss;
          high_ = any_loss_ ? std::max(high_, loss) : loss;
          any_loss_ = true;
        }
      }
    }
  }

  static bool is_drawn(double loss) { return std::abs(loss) <= kLargestLoss; }  // no NaN either

  double x(std::int64_t epoch) const {
    const double share =
        last_ > first_ ? static_cast<double>(epoch - first_) / static_cast<double>(last_ - first_) : 0.5;
    return kPanelWidth + kPanelMargin + share * (kPanelWidth - 2 * kPanelMargin);
  }
  double y(double loss) const {
    const double share = high_ > low_ ? (loss - low_) / (high_ - low_) : 0.5;
    return bottom_ - 10 - share * (bottom_ - kPanelTop - 20);
  }

  std::string draw() const {
    std::string svg = fmt::format(
        "<text x=\"{:.1f}\" y=\"24\" font-weight=\"bold\">training loss</text>\n"
        "<path d=\"M{:.1f} {:.1f}V{:.1f}H{:.1f}\" fill=\"none\" stroke=\"#444444\"/>\n"
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">epoch</text>\n",
        kPanelWidth + kPanelMargin, kPanelWidth + kPanelMargin - 10, kPanelTop, bottom_,
        2 * kPanelWidth - kPanelMargin + 10, 1.5 * kPanelWidth, bottom_ + 34);
    for (const std::int64_t epoch : {first_, last_}) {
      svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n", x(epoch), bottom_ + 16,
                         epoch);
      if (first_ == last_) {
        break;
      }
    }
    return svg + draw_losses();
  }

 private:
  std::string draw_losses() const {
    if (!any_loss_) {
      return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">no run has a finite loss</text>\n",
                         1.5 * kPanelWidth, bottom_ / 2);
    }
    std::string svg;
    for (const double loss : high_ > low_ ? std::vector{low_, (low_ + high_) / 2, high_} : std::vector{low_}) {
      svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{:.3g}</text>\n",
                         kPanelWidth + kPanelMargin - 16, y(loss) + 4, loss);
    }
    return svg;
  }

  double bottom_;
  bool any_ = false;
  bool any_loss_ = false;
  std::int64_t first_ = 0;
  std::int64_t last_ = 0;
  double low_ = 0;
  double high_ = 0;
};

/// A run's losses as lines that end where a loss is not finite; a point by itself as a dot.
std::string curve(const RunSummary& run, const Axes& axes, const char* stroke, double width) {
  std::string svg;
  for (std::size_t begin = 0; begin < run.losses.size();) {
    std::size_t end = begin;
    std::string points;
    for (; end < run.losses.size() && Axes::is_drawn(run.losses[end].second); ++end) {
      const auto& [epoch, loss] = run.losses[end];
      points += fmt::format("{}{:.1f},{:.1f}", end == begin ? "" : " ", axes.x(epoch), axes.y(loss));
    }
    if (end == begin + 1) {
      const auto& [epoch, loss] = run.losses[begin];
      svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\" fill=\"{}\"/>\n", axes.x(epoch),
                         axes.y(loss), width / 2 + 2, stroke);
    } else if (end > begin) {
      svg += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{:.1f}\"/>\n", points,
                         stroke, width);
    }
    begin = end + 1;
  }
  return svg;
}

}  // namespace

std::string loss_panel(const std::vector<RunSummary>& runs, double height) {
  const Axes axes(runs, height);
  std::string svg = axes.draw();
  // Schedules that train alike have one curve: the later ones are thinner, so that all can be seen.
  constexpr double kThinnest = 1.5;
  const auto count = static_cast<double>(runs.size());
  const double step = std::min(2.5, 10 / count);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    svg += curve(runs[i], axes, run_colour(i), kThinnest + step * (count - 1 - static_cast<double>(i)));
  }
  return svg;
}

}  // namespace stagecoach
