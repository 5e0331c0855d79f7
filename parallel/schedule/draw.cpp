#include "parallel/schedule/draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "parallel/drawing/timeline.h"

namespace stagecoach {
namespace {

/// In the order of the operations. Only the trace shows communication.
const LegendEntry kLooks[] = {{"F forward", kSkyBlue},
                              {"B backward", kOrange},
                              {"I input gradient", kOrange},
                              {"W weight gradient", kYellow},
                              {"U update", kPurple}};

/// Returns the stages that the rank holds: its chunks.
std::vector<int> stages_of(const Schedule& schedule, int rank) {
  std::vector<int> stages;
  for (int stage = 0; stage < schedule.stage_count(); ++stage) {
    if (schedule.holds(rank, stage)) {
      stages.push_back(stage);
    }
  }
  return stages;
}

TimelineRow row_of(const Schedule& schedule, const Simulation& simulation, const Ledger& ledger, int rank) {
  const auto r = static_cast<std::size_t>(rank);
  const std::vector<int> stages = stages_of(schedule, rank);
  TimelineRow row{.name = fmt::format("rank {}", rank)};
  for (std::size_t i = 0; i < schedule.ranks[r].size(); ++i) {
    const Action& action = schedule.ranks[r][i];
    if (is_communication(action.operation)) {
      continue;
    }
    const auto [start, end] = simulation.timeline[r][i];
    const auto chunk = static_cast<int>(std::find(stages.begin(), stages.end(), action.stage) - stages.begin());
    const std::string letter = stages.size() == 1 ? "" : std::string(1, static_cast<char>('a' + std::min(chunk, 25)));
    row.bars.push_back({.begin = start,
                        .end = end,
                        .colour = kLooks[static_cast<std::size_t>(action.operation)].colour,
                        .label = fmt::format("{}{}{}", symbol_of(action.operation), action.microbatch, letter),
                        .title = to_string(action),
                        .is_light = (ledger.empty() ? chunk : ledger[r][i]) % 2 == 1,
                        .mark = symbol_of(action.operation).front()});
  }
  return row;
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
    chart.rows.push_back(row_of(schedule, simulation, ledger, rank));
    chunks = std::max(chunks, stages_of(schedule, rank).size());
  }
  std::copy_if(std::begin(kLooks), std::end(kLooks), std::back_inserter(chart.legend),
               [&](const LegendEntry& look) { return shows(chart, look); });
  chart.note = chunks == 1 ? "" : chunks == 2 ? "a, b: chunk" : "a, b, c, ...: chunk";
  return chart;
}

}  // namespace

std::string draw_text(const Schedule& schedule, const Simulation& simulation, const Terminal& terminal,
                      const Ledger& ledger) {
  return timeline_text(chart_of(schedule, simulation, ledger), terminal);
}

std::string draw_svg(const Schedule& schedule, const Simulation& simulation, const std::string& title,
                     const std::string& unit) {
  TimelineChart chart = chart_of(schedule, simulation, {});
  chart.title = fmt::format("{}: idle {:.1f}% of the step", title, 100 * simulation.idle);
  chart.unit = unit;
  return timeline_svg(chart);
}

}  // namespace stagecoach
