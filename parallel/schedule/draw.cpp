#include "parallel/schedule/draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "drawing/timeline.h"

namespace stagecoach {
namespace {

struct Look {
  Operation operation;
  const char* name;
  Colour colour;
};

/// All that is drawn: communication is only in the trace.
constexpr Look kLooks[] = {{Operation::forward, "F forward", kSkyBlue},
                           {Operation::backward, "B backward", kOrange},
                           {Operation::backward_input, "I input gradient", kOrange},
                           {Operation::backward_weight, "W weight gradient", kYellow},
                           {Operation::update, "U update", kPurple}};

const Look& look_of(const Action& action) { return kLooks[static_cast<std::size_t>(action.operation)]; }

/// For each stage that the rank holds, which of its stages that is, counted from 0.
std::vector<int> chunks_of(const Schedule& schedule, int rank) {
  std::vector<int> chunks(static_cast<std::size_t>(schedule.stage_count()));
  int count = 0;
  for (int stage = 0; stage < schedule.stage_count(); ++stage) {
    chunks[static_cast<std::size_t>(stage)] = schedule.holds(rank, stage) ? count++ : 0;
  }
  return chunks;
}

TimelineChart chart_of(const Schedule& schedule, const Simulation& simulation, const Ledger& ledger) {
  TimelineChart chart{.length = simulation.seconds, .idle_name = "idle (bubble)", .shows_all_labels = true};
  bool is_used[std::size(kLooks)] = {};
  int most_chunks = 1;
  for (int rank = 0; rank < schedule.rank_count(); ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    const std::vector<int> chunks = chunks_of(schedule, rank);
    const int count = chunks.empty() ? 1 : 1 + *std::max_element(chunks.begin(), chunks.end());
    most_chunks = std::max(most_chunks, count);
    TimelineRow row{.name = fmt::format("rank {}", rank)};
    for (std::size_t i = 0; i < schedule.ranks[r].size(); ++i) {
      const Action& action = schedule.ranks[r][i];
      if (is_communication(action.operation)) {
        continue;
      }
      const auto [start, end] = simulation.timeline[r][i];
      const int chunk = chunks[static_cast<std::size_t>(action.stage)];
      const std::string letter = count == 1 ? "" : std::string(1, static_cast<char>('a' + std::min(chunk, 25)));
      is_used[static_cast<std::size_t>(action.operation)] |= end > start;
      row.bars.push_back({.begin = start,
                          .end = end,
                          .colour = look_of(action).colour,
                          .label = fmt::format("{}{}{}", symbol_of(action.operation), action.microbatch, letter),
                          .title = to_string(action),
                          .is_light = (ledger.empty() ? chunk : ledger[r][i]) % 2 == 1,
                          .mark = symbol_of(action.operation).front()});
    }
    chart.rows.push_back(std::move(row));
  }
  for (const Look& look : kLooks) {
    if (is_used[static_cast<std::size_t>(look.operation)]) {
      chart.legend.push_back({look.name, look.colour});
    }
  }
  chart.note = most_chunks == 1 ? "" : most_chunks == 2 ? "a, b: chunk" : "a, b, c, ...: chunk";
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
