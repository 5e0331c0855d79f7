// Weights and time in one picture; its function stands in draw.h.

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "parallel/schedule/draw.h"
#include "parallel/schedule/timeline_picture.h"

namespace stagecoach {
namespace {

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

/// A rank's actions and, under them, its versions. Gives the height.
double draw_rank(const Schedule& schedule, const Simulation& simulation, const Ledger& ledger, std::size_t rank,
                 double top, TimelinePicture& picture) {
  picture.name_row(top, fmt::format("rank {}", rank));
  for (std::size_t place = 0; place < ledger[rank].size(); ++place) {
    const Action& action = schedule.ranks[rank][place];
    const auto [start, end] = simulation.timeline[rank][place];
    const int version = ledger[rank][place];
    if (version == kNoVersion) {
      continue;
    }
    picture.add({start, end, top, kAction, colour_of(version), action.operation == Operation::forward ? 0.6 : 1,
                 fmt::format("{} v{}", to_string(action), version),
                 fmt::format("{}{}", symbol_of(action.operation), action.microbatch)});
  }
  std::vector<double> ends;  // of each lane's last bar
  int version = 0;
  for (const Life& life : lives(schedule, simulation, ledger, rank)) {
    const double y = top + kAction + kBar * static_cast<double>(free_lane(ends, life));
    picture.add({life.from, life.to, y, kBar, colour_of(version), 0.85, fmt::format("version {}", version),
                 fmt::format("v{}", version)});
    ++version;
  }
  return kAction + kBar * static_cast<double>(ends.size()) + kGap;
}

}  // namespace

std::string draw_versions_svg(const Schedule& schedule, const Simulation& simulation, const Ledger& ledger,
                              const std::string& title) {
  TimelinePicture picture(simulation.seconds);
  double top = TimelinePicture::kTop;
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    top += draw_rank(schedule, simulation, ledger, r, top, picture);
  }
  return picture.svg(top, title);
}

}  // namespace stagecoach
