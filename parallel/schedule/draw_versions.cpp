// Weights and time in one picture; its function stands in draw.h.

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "parallel/schedule/draw.h"

namespace stagecoach {
namespace {

constexpr double kWidth = 960;
constexpr double kLeft = 60;
constexpr double kTop = 34;
constexpr double kAction = 20;  // heights
constexpr double kBar = 9;
constexpr double kGap = 10;

/// Colours that stay apart when they come one after the other.
const char* colour_of(int version) {
  constexpr const char* kColours[] = {"#4c8bd6", "#e39b3b", "#5aa469", "#c8553d", "#8a6bbf", "#6aa6a6"};
  return kColours[static_cast<std::size_t>(version) % std::size(kColours)];
}

/// From when to when a rank keeps a version.
struct Life {
  double from;
  double to;
};

std::vector<Life> lives(const Schedule& schedule, const Simulation& simulation, const Ledger& ledger,
                        std::size_t rank) {
  const auto last = last_uses(schedule, ledger, static_cast<int>(rank));
  const auto& times = simulation.timeline[rank];
  std::vector<Life> all{{0, 0}};
  for (std::size_t place = 0; place < times.size(); ++place) {
    if (schedule.ranks[rank][place].operation == Operation::update) {
      all.back().to = times[place].end;  // the newest stays until there is a newer one
      all.push_back({times[place].end, simulation.seconds});
    }
  }
  all.back().to = simulation.seconds;
  for (std::size_t v = 0; v < all.size(); ++v) {
    all[v].to = std::max(all[v].to, times.empty() ? 0 : times[last[v]].end);
  }
  return all;
}

/// The first lane whose last bar has ended; a new one if there is none.
std::size_t free_lane(std::vector<double>& ends, const Life& life) {
  const auto free = std::find_if(ends.begin(), ends.end(), [&](double end) { return end <= life.from; });
  const auto lane = static_cast<std::size_t>(free - ends.begin());
  if (free == ends.end()) {
    ends.push_back(0);
  }
  ends[lane] = life.to;
  return lane;
}

/// Writes shapes; x in seconds.
class Picture {
 public:
  explicit Picture(double seconds) : scale_(seconds > 0 ? (kWidth - kLeft - 10) / seconds : 0) {}

  void words(double x, double y, const std::string& text, const char* more = "") {
    fmt::format_to(std::back_inserter(body_), "<text x=\"{:.2f}\" y=\"{:.1f}\"{}>{}</text>\n", x, y, more, text);
  }
  void box(double from, double to, double y, double height, int version, const std::string& title,
           const std::string& label, double opacity) {
    fmt::format_to(std::back_inserter(body_),
                   "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" fill=\"{}\" "
                   "fill-opacity=\"{:.2f}\" stroke=\"#ffffff\"><title>{}</title></rect>\n",
                   kLeft + from * scale_, y, (to - from) * scale_, height, colour_of(version), opacity, title);
    if ((to - from) * scale_ > 16) {
      const std::string style = fmt::format(" text-anchor=\"middle\" font-size=\"{:.0f}\"", std::min(11.0, height - 1));
      words(kLeft + (from + to) / 2 * scale_, y + height - 0.28 * height, label, style.c_str());
    }
  }
  std::string svg(double height, const std::string& title) const {
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" font-size=\"11\">\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
        "<text x=\"10\" y=\"20\" font-size=\"14\">{}</text>\n{}</svg>\n",
        kWidth, height, title, body_);
  }

 private:
  double scale_;
  std::string body_;
};

/// A rank's actions and, under them, its versions. Gives the height.
double draw_rank(const Schedule& schedule, const Simulation& simulation, const Ledger& ledger, std::size_t rank,
                 double top, Picture& picture) {
  picture.words(10, top + 14, fmt::format("rank {}", rank));
  for (std::size_t place = 0; place < ledger[rank].size(); ++place) {
    const Action& action = schedule.ranks[rank][place];
    const auto [start, end] = simulation.timeline[rank][place];
    const int version = ledger[rank][place];
    picture.box(start, end, top, kAction, version, fmt::format("{} v{}", to_string(action), version),
                fmt::format("{}{}", letter_of(action.operation), action.microbatch),
                action.operation == Operation::forward ? 0.6 : 1);
  }
  std::vector<double> ends;  // of each lane's last bar
  int version = 0;
  for (const Life& life : lives(schedule, simulation, ledger, rank)) {
    const double y = top + kAction + kBar * static_cast<double>(free_lane(ends, life));
    picture.box(life.from, life.to, y, kBar, version, fmt::format("version {}", version), fmt::format("v{}", version),
                0.85);
    ++version;
  }
  return kAction + kBar * static_cast<double>(ends.size()) + kGap;
}

}  // namespace

std::string draw_versions_svg(const Schedule& schedule, const Simulation& simulation, const Ledger& ledger,
                              const std::string& title) {
  Picture picture(simulation.seconds);
  double top = kTop;
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    top += draw_rank(schedule, simulation, ledger, r, top, picture);
  }
  return picture.svg(top, title);
}

}  // namespace stagecoach
