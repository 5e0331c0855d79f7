#include "parallel/schedule/draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "parallel/drawing/timeline.h"

namespace stagecoach {
namespace {

/// In the order of the operations. Only the trace shows communication.
const LegendEntry kLooks[] = {{"F forward", kSkyBlue},
                              {"B backward", kOrange},
                              {"I input gradient", kOrange},
                              {"W weight gradient", kYellow},
                              {"U update", kPurple}};

/// Returns the row of a rank. bar_of(i) returns the bar of the rank's i-th action, without its times.
template <class BarOf>
TimelineRow row_of(const Schedule& schedule, const Simulation& simulation, std::size_t rank, const BarOf& bar_of) {
  TimelineRow row{.name = fmt::format("rank {}", rank)};
  for (std::size_t i = 0; i < schedule.ranks[rank].size(); ++i) {
    if (!is_communication(schedule.ranks[rank][i].operation)) {
      TimelineBar& bar = row.bars.emplace_back(bar_of(i));
      bar.begin = simulation.timeline[rank][i].start;
      bar.end = simulation.timeline[rank][i].end;
    }
  }
  return row;
}

TimelineRow row_of_chunks(const Schedule& schedule, const Simulation& simulation, const Ledger& ledger, int rank) {
  const auto r = static_cast<std::size_t>(rank);
  const std::vector<int> stages = schedule.stages_of(rank);
  return row_of(schedule, simulation, r, [&](std::size_t i) {
    const Action& action = schedule.ranks[r][i];
    const auto chunk = static_cast<int>(std::find(stages.begin(), stages.end(), action.stage) - stages.begin());
    const std::string letter = stages.size() == 1 ? "" : std::string(1, static_cast<char>('a' + std::min(chunk, 25)));
    return TimelineBar{.colour = kLooks[static_cast<std::size_t>(action.operation)].colour,
                       .label = fmt::format("{}{}{}", symbol_of(action.operation), action.microbatch, letter),
                       .title = to_string(action),
                       .is_light = (ledger.empty() ? chunk : ledger[r][i]) % 2 == 1,
                       .mark = symbol_of(action.operation).front()};
  });
}

bool shows(const TimelineChart& chart, const LegendEntry& look) {
  return std::any_of(chart.rows.begin(), chart.rows.end(), [&](const TimelineRow& row) {
    return std::any_of(row.bars.begin(), row.bars.end(),
                       [&](const TimelineBar& bar) { return bar.mark == look.name.front() && bar.end > bar.begin; });
  });
}

TimelineChart chart_of(const Schedule& schedule, const Simulation& simulation, const Ledger& ledger) {
  TimelineChart chart{.length = simulation.seconds, .idle_name = "idle (bubble)", .shows_all_labels = true};
  std::size_t chunks = 1;
  for (int rank = 0; rank < schedule.rank_count(); ++rank) {
    chart.rows.push_back(row_of_chunks(schedule, simulation, ledger, rank));
    chunks = std::max(chunks, schedule.stages_of(rank).size());
  }
  std::copy_if(std::begin(kLooks), std::end(kLooks), std::back_inserter(chart.legend),
               [&](const LegendEntry& look) { return shows(chart, look); });
  chart.note = chunks == 1 ? "" : chunks == 2 ? "a, b: chunk" : "a, b, c, ...: chunk";
  return chart;
}

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

TimelineRow row_of_versions(const Schedule& schedule, const Simulation& simulation, const Ledger& ledger,
                            std::size_t rank) {
  return row_of(schedule, simulation, rank, [&](std::size_t i) {
    const Action& action = schedule.ranks[rank][i];
    const int version = ledger[rank][i];
    return TimelineBar{.colour = fill_colour(static_cast<std::size_t>(version)),
                       .label = fmt::format("{}{}", symbol_of(action.operation), action.microbatch),
                       .title = fmt::format("{} v{}", to_string(action), version),
                       .is_light = action.operation == Operation::forward};
  });
}

}  // namespace

std::string draw_text(const Schedule& schedule, const Simulation& simulation, const Terminal& terminal,
                      const Ledger& ledger, const std::string& unit) {
  TimelineChart chart = chart_of(schedule, simulation, ledger);
  chart.unit = unit;
  return timeline_text(chart, terminal);
}

std::string draw_svg(const Schedule& schedule, const Simulation& simulation, const std::string& title,
                     const std::string& unit) {
  TimelineChart chart = chart_of(schedule, simulation, {});
  chart.title = fmt::format("{}: idle {:.1f}% of the step", title, 100 * simulation.idle);
  chart.unit = unit;
  return timeline_svg(chart);
}

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
    chart.rows.push_back(row_of_versions(schedule, simulation, ledger, r));
    for (TimelineRow& row : version_rows(lives_of(schedule, simulation, ledger, r))) {
      chart.rows.push_back(std::move(row));
    }
    chart.rows.push_back({.shows_idle = false, .height = 8});  // a gap before the next rank
  }
  return timeline_svg(chart);
}

}  // namespace stagecoach
