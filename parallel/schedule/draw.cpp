#include "parallel/schedule/draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "parallel/schedule/timeline_picture.h"

namespace stagecoach {
namespace {

constexpr std::size_t kDrawn = 5;  // operations: all but communication, which the trace shows

/// Of the 256 colours that terminals know: a row of shades an operation.
int terminal_colour(const Action& action, int shade) {
  constexpr int kShades[kDrawn][4] = {
      {33, 39, 45, 51}, {34, 40, 46, 82}, {28, 34, 40, 46}, {178, 184, 190, 226}, {160, 166, 172, 178}};
  return kShades[static_cast<std::size_t>(action.operation)][shade % 4];
}

const char* svg_colour(Operation operation) {
  constexpr const char* kColours[kDrawn] = {"#4c8bd6", "#5aa469", "#5aa469", "#d9b44a", "#c8553d"};
  return kColours[static_cast<std::size_t>(operation)];
}

/// "F3", cut to `width` columns: the letter alone, or filled up with the letter's dashes.
std::string label(const Action& action, int width) {
  std::string text = fmt::format("{}{}", symbol_of(action.operation), action.microbatch);
  if (static_cast<int>(text.size()) > width) {
    text.resize(1);
  }
  return fmt::format("{:-<{}}", text, width);
}

/// Which of its rank's stages an action belongs to, counted from 0.
int chunk_of(const Schedule& schedule, const Action& action) {
  return action.stage / std::max(schedule.rank_count(), 1);
}

std::string draw_rank(const Schedule& schedule, std::size_t rank, const std::vector<Simulation::Timed>& times,
                      double scale, int columns, Colours colours, const Ledger& ledger) {
  std::string line;
  int at = 0;
  for (std::size_t i = 0; i < times.size(); ++i) {
    const Action& action = schedule.ranks[rank][i];
    const int start = std::max(at, static_cast<int>(std::lround(times[i].start * scale)));
    const int end = static_cast<int>(std::lround(times[i].end * scale));
    if (is_communication(action.operation) || end <= start) {
      continue;  // or too short to be seen
    }
    line.append(static_cast<std::size_t>(start - at), '.');
    const std::string text = label(action, end - start);
    const int shade = ledger.empty() ? chunk_of(schedule, action) : ledger[rank][i];
    line += colours == Colours::none
                ? text
                : fmt::format("\033[48;5;{}m\033[30m{}\033[0m", terminal_colour(action, shade), text);
    at = end;
  }
  line.append(static_cast<std::size_t>(std::max(columns - at, 0)), '.');
  return line;
}

}  // namespace

std::string draw_text(const Schedule& schedule, const Simulation& simulation, int columns, Colours colours,
                      const Ledger& ledger) {
  const double scale = simulation.seconds > 0 ? columns / simulation.seconds : 0;
  std::string picture;
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    picture += fmt::format("rank {:<3} {}\n", r,
                           draw_rank(schedule, r, simulation.timeline[r], scale, columns, colours, ledger));
  }
  return picture;
}

std::string draw_svg(const Schedule& schedule, const Simulation& simulation, const std::string& title) {
  constexpr double kRow = 26;
  TimelinePicture picture(simulation.seconds);
  double top = TimelinePicture::kTop;
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r, top += kRow) {
    picture.name_row(top, fmt::format("rank {}", r));
    for (std::size_t i = 0; i < schedule.ranks[r].size(); ++i) {
      const Action& action = schedule.ranks[r][i];
      if (is_communication(action.operation)) {
        continue;
      }
      const auto [start, end] = simulation.timeline[r][i];
      picture.add({start, end, top, kRow - 4, svg_colour(action.operation),
                   1.0 / (1 + 0.5 * chunk_of(schedule, action)), to_string(action),
                   fmt::format("{}", action.microbatch)});
    }
  }
  return picture.svg(top + 10, fmt::format("{}: idle {:.1f}%", title, 100 * simulation.idle));
}

}  // namespace stagecoach
