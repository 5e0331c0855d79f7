// Timelines as text and as figures.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "parallel/schedule/draw.h"
#include "parallel/schedule/lower.h"
#include "parallel/schedule/pipedream.h"
#include "parallel/schedule/schedule_kinds.h"

namespace stagecoach {
namespace {

/// The widest line.
std::size_t width_of(const std::string& text) {
  std::istringstream lines(text);
  std::size_t width = 0;
  for (std::string line; std::getline(lines, line);) {
    width = std::max(width, line.size());
  }
  return width;
}

TEST(DrawSchedule, ShowsLettersNumbersAndIdleMoments) {
  const Schedule schedule = lower(make_schedule("gpipe", 2, 2));
  const Simulation simulation = simulate(schedule, Costs::uniform(2, 1, 1, 1));
  EXPECT_EQ(draw_text(schedule, simulation, {.columns = 26}),
            "time    0\n"
            "rank 0  F0F1......B0--B1--\n"
            "rank 1  ..F0F1B0--B1--....\n"
            "        F forward,\n"
            "        B backward,\n"
            "        . idle (bubble)\n");
}

TEST(DrawSchedule, GoesOnInFurtherBlocksWhereOneLineHasNoRoomForNumbers) {
  const Schedule schedule = lower(make_schedule("gpipe", 2, 2));
  const Simulation simulation = simulate(schedule, Costs::uniform(2, 1, 1, 1));
  EXPECT_EQ(draw_text(schedule, simulation, {.columns = 18}),
            "time    0\n"
            "rank 0  F0F1......\n"
            "rank 1  ..F0F1B0--\n"
            "time    5\n"
            "rank 0  B0--B1--\n"
            "rank 1  B1--....\n"
            "        F forward,\n"
            "        B backward,\n"
            "        . idle (bubble)\n");
}

TEST(DrawSchedule, MarksTheChunkByALetter) {
  const Schedule schedule = lower(make_schedule("interleaved", 2, 2, 2));
  const Simulation simulation = simulate(schedule, Costs::uniform(4, 1, 1, 1));
  const std::string text = draw_text(schedule, simulation);
  EXPECT_NE(text.find("rank 0  F0a"), std::string::npos) << text;
  EXPECT_NE(text.find("F1b"), std::string::npos) << text;
  EXPECT_NE(text.find("a, b: chunk"), std::string::npos) << text;
}

TEST(DrawSchedule, ShowsEveryNumberUpTo16RanksAnd32MicroBatches) {
  for (const Schedule& computations :
       {make_schedule("gpipe", 16, 32), make_schedule("1f1b", 16, 32), make_schedule("zb-h1", 16, 32),
        make_schedule("interleaved", 16, 32, 4), make_schedule("zbv", 16, 32)}) {
    const Schedule schedule = lower(computations);
    const Simulation simulation = simulate(schedule, Costs::uniform(schedule.stage_count(), 1, 1, 1));
    for (const int columns : {80, 120}) {
      const std::string text = draw_text(schedule, simulation, {.columns = columns});
      EXPECT_LE(width_of(text), static_cast<std::size_t>(columns));
      std::map<std::string, std::string> lines;  // of each rank, its blocks one after the other
      std::istringstream all(text);
      for (std::string line; std::getline(all, line);) {
        lines[line.substr(0, 7)] += line.substr(std::min<std::size_t>(9, line.size()));
      }
      for (int rank = 0; rank < 16; ++rank) {
        std::multiset<std::string> expected;
        for (const Action& action : computations.ranks[static_cast<std::size_t>(rank)]) {
          const std::string chunk = schedule.stage_count() == 16 ? "" : std::string(1, "abcd"[action.stage / 16]);
          expected.insert(fmt::format("{}{}{}", symbol_of(action.operation), action.microbatch, chunk));
        }
        const std::string& line = lines[fmt::format("rank {:<2}", rank)];
        const std::regex label("[FBIW][0-9]+[abcd]?");
        const std::multiset<std::string> shown(std::sregex_token_iterator(line.begin(), line.end(), label), {});
        ASSERT_EQ(shown, expected) << "rank " << rank << " in\n" << text;
      }
    }
  }
}

TEST(DrawSchedule, LeavesOutNumbersWhereNoScaleHasRoomForThem) {
  const Schedule schedule = lower(make_schedule("gpipe", 2, 2));
  Costs costs = Costs::uniform(2, 1, 1, 1);
  costs.forward[0] = 1e-3;
  const std::string text = draw_text(schedule, simulate(schedule, costs), {.columns = 30});
  EXPECT_EQ(text.rfind("rank 0"), text.find("rank 0")) << "one block: " << text;
  EXPECT_LE(width_of(text), 30U);
}

TEST(DrawSchedule, ColoursLeaveTheTextAsItIs) {
  const Schedule schedule = lower(make_schedule("interleaved", 2, 4, 2));
  const Simulation simulation = simulate(schedule, Costs::uniform(4, 1, 1, 1));
  std::string coloured = draw_text(schedule, simulation, {.columns = 80, .colours = true});
  EXPECT_NE(coloured.find("\033[48;5;"), std::string::npos);
  for (std::size_t at = coloured.find('\033'); at != std::string::npos; at = coloured.find('\033')) {
    coloured.erase(at, coloured.find('m', at) - at + 1);
  }
  EXPECT_EQ(coloured, draw_text(schedule, simulation));
}

TEST(DrawSchedule, AsAFigureHasARectangleAnAction) {
  const Schedule schedule = lower(make_schedule("zb-h1", 3, 4));
  const Simulation simulation = simulate(schedule, Costs::uniform(3, 1, 1, 1));
  const std::string svg = draw_svg(schedule, simulation, "zb-h1", "units");
  std::size_t rectangles = 0;
  for (std::size_t at = svg.find("<title>"); at != std::string::npos; at = svg.find("<title>", at + 1)) {
    ++rectangles;
  }
  EXPECT_EQ(rectangles, 3U * 4 * 3);
  EXPECT_NE(svg.find("<title>2W3</title>"), std::string::npos);
  EXPECT_NE(svg.find("zb-h1: idle 14.3%"), std::string::npos) << svg.substr(0, 400);
}

TEST(DrawSchedule, ATitleIsNoMarkup) {
  const Schedule schedule = lower(make_schedule("gpipe", 2, 2));
  const Simulation simulation = simulate(schedule, Costs::uniform(2, 1, 1, 1));
  const std::string svg = draw_svg(schedule, simulation, "</text><script>\033.csv", "ms");
  EXPECT_NE(svg.find("&lt;/text&gt;&lt;script&gt;\\x1b.csv: idle"), std::string::npos) << svg.substr(0, 400);
  EXPECT_EQ(svg.find("<script"), std::string::npos);
}

TEST(DrawVersions, HasABarForEveryVersionAndAColourForEach) {
  const Schedule schedule = lower(pipedream_schedule({1, 1}, 4, 1, Versions::stash));
  const Ledger ledger = make_ledger(schedule, Versions::stash);
  Costs costs = Costs::uniform(2, 1, 1, 1);
  costs.update = {0.5, 0.5};
  const Simulation simulation = simulate(schedule, costs);
  const std::string svg = draw_versions_svg(schedule, simulation, ledger, "stash", "units");
  for (const char* title : {"0F3 v2", "0B3 v2", "1F3 v3", "0U3 v4", "version 0", "version 4"}) {
    EXPECT_NE(svg.find(fmt::format("<title>{}</title>", title)), std::string::npos) << title;
  }
  EXPECT_EQ(svg.find("version 5"), std::string::npos);
  // Rank 0 has two versions at once, so two rows of them; rank 1 one: 2 x (24 + 8) + 3 x 13, with 50 above and 38
  // below.
  EXPECT_NE(svg.find("viewBox=\"0 0 960 191\""), std::string::npos) << svg.substr(0, 200);
  // By terminal the shade of an action is its version's: that of micro-batch 1 on rank 1 is another than micro-batch
  // 0's.
  const std::string coloured = draw_text(schedule, simulation, {.columns = 80, .colours = true}, ledger);
  EXPECT_NE(coloured.find("48;5;74m"), std::string::npos);
  EXPECT_NE(coloured.find("48;5;117m"), std::string::npos);
}

}  // namespace
}  // namespace stagecoach
