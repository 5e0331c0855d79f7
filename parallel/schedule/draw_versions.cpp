// Draws weights and time in one figure. draw.h declares the function.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "parallel/drawing/timeline.h"
#include "parallel/schedule/draw.h"

namespace stagecoach {
namespace {

/// The time span during which a rank keeps a version.
struct Life {
  double from;
  double to;
};

std::vector<Life> lives_of(const Schedule& schedule, const Simulation& simulation, const Ledger& ledger,
                           std::size_t rank) {
  const auto last = last_uses(schedule, ledger, static_cast<int>(rank));
  const auto& times = simulation.timeline[rank];
  std::vector<Life> all{{0, 0}};
  for (std::size_t i = 0; i < times.size(); ++i) {
    if (schedule.ranks[rank][i].operation == Operation::update) {
      all.back().to = times[i].end;  // the newest version is kept until there is a newer one
      all.push_back({times[i].end, simulation.seconds});
    }
  }
  all.back().to = simulation.seconds;
  for (std::size_t v = 0; v < all.size(); ++v) {
    all[v].to = std::max(all[v].to, times.empty() ? 0 : times[last[v]].end);
  }
  return all;
}

/// Returns the rows below a rank's actions that show the versions that it keeps: as few as possible, as versions that
/// do not overlap share a row.
std::vector<TimelineRow> version_rows(const std::vector<Life>& lives) {
  std::vector<TimelineRow> rows;
  for (std::size_t v = 0; v < lives.size(); ++v) {
    auto row = std::find_if(rows.begin(), rows.end(),
                            [&](const TimelineRow& other) { return other.bars.back().end <= lives[v].from; });
    if (row == rows.end()) {
      row = rows.insert(rows.end(), {.shows_idle = false, .height = 13});
    }
    row->bars.push_back({.begin = lives[v].from,
                         .end = lives[v].to,
                         .colour = fill_colour(v),
                         .label = fmt::format("v{}", v),
                         .title = fmt::format("version {}", v)});
  }
  return rows;
}

TimelineRow action_row(const Schedule& schedule, const Simulation& simulation, const Ledger& ledger, std::size_t rank) {
  TimelineRow row{.name = fmt::format("rank {}", rank)};
  for (std::size_t i = 0; i < ledger[rank].size(); ++i) {
    const Action& action = schedule.ranks[rank][i];
    const int version = ledger[rank][i];
    if (version == kNoVersion) {
      continue;
    }
    const auto [start, end] = simulation.timeline[rank][i];
    row.bars.push_back({.begin = start,
                        .end = end,
                        .colour = fill_colour(static_cast<std::size_t>(version)),
                        .label = fmt::format("{}{}", symbol_of(action.operation), action.microbatch),
                        .title = fmt::format("{} v{}", to_string(action), version),
                        .is_light = action.operation == Operation::forward});
  }
  return row;
}

}  // namespace

std::string draw_versions_svg(const Schedule& schedule, const Simulation& simulation, const Ledger& ledger,
                              const std::string& title, const std::string& unit) {
  TimelineChart chart{.title = title,
                      .unit = unit,
                      .length = simulation.seconds,
                      .idle_name = "idle (bubble)",
                      .note =
                          "A colour is a version of the weights, light for forwards; below a rank the versions "
                          "that it keeps (v0, v1, ...)",
                      .shows_all_labels = true};
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    chart.rows.push_back(action_row(schedule, simulation, ledger, r));
    for (TimelineRow& row : version_rows(lives_of(schedule, simulation, ledger, r))) {
      chart.rows.push_back(std::move(row));
    }
    chart.rows.push_back({.shows_idle = false, .height = 8});  // a gap before the next rank
  }
  return timeline_svg(chart);
}

}  // namespace stagecoach
