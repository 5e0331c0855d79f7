// Timelines as text and as pictures.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "parallel/schedule/draw.h"
#include "parallel/schedule/generators.h"
#include "parallel/schedule/lower.h"
#include "parallel/schedule/pipedream.h"

namespace stagecoach {
namespace {

TEST(DrawSchedule, ShowsLettersNumbersAndIdleMoments) {
  const Schedule schedule = lower(gpipe_schedule(2, 2));
  const Simulation simulation = simulate(schedule, Costs::uniform(2, 1, 1, 1));
  EXPECT_EQ(draw_text(schedule, simulation, 18),
            "rank 0   F0F1......B0--B1--\n"
            "rank 1   ..F0F1B0--B1--....\n");
}

TEST(DrawSchedule, LeavesOutNumbersWithoutRoom) {
  const Schedule schedule = lower(gpipe_schedule(2, 2));
  const Simulation simulation = simulate(schedule, Costs::uniform(2, 1, 1, 1));
  EXPECT_EQ(draw_text(schedule, simulation, 9),
            "rank 0   FF...B0B1\n"
            "rank 1   .FFB0B1..\n");
}

TEST(DrawSchedule, ColoursLeaveTheTextAsItIs) {
  const Schedule schedule = lower(interleaved_schedule(2, 4, 2));
  const Simulation simulation = simulate(schedule, Costs::uniform(4, 1, 1, 1));
  std::string coloured = draw_text(schedule, simulation, 80, Colours::terminal);
  EXPECT_NE(coloured.find("\033[48;5;"), std::string::npos);
  for (std::size_t at = coloured.find('\033'); at != std::string::npos; at = coloured.find('\033')) {
    coloured.erase(at, coloured.find('m', at) - at + 1);
  }
  EXPECT_EQ(coloured, draw_text(schedule, simulation, 80));
}

TEST(DrawSchedule, AsAPictureHasARectangleAnAction) {
  const Schedule schedule = lower(zero_bubble_h1_schedule(3, 4));
  const Simulation simulation = simulate(schedule, Costs::uniform(3, 1, 1, 1));
  const std::string svg = draw_svg(schedule, simulation, "zb-h1");
  std::size_t rectangles = 0;
  for (std::size_t at = svg.find("<rect x="); at != std::string::npos; at = svg.find("<rect x=", at + 1)) {
    ++rectangles;
  }
  EXPECT_EQ(rectangles, 3U * 4 * 3);
  EXPECT_NE(svg.find("<title>2W3</title>"), std::string::npos);
  EXPECT_NE(svg.find("zb-h1: idle 14.3%"), std::string::npos) << svg.substr(0, 400);
}

TEST(DrawSchedule, ATitleIsNoMarkup) {
  const Schedule schedule = lower(gpipe_schedule(2, 2));
  const Simulation simulation = simulate(schedule, Costs::uniform(2, 1, 1, 1));
  const std::string svg = draw_svg(schedule, simulation, "</text><script>\033.csv");
  EXPECT_NE(svg.find("&lt;/text&gt;&lt;script&gt;\\x1b.csv: idle"), std::string::npos) << svg.substr(0, 400);
  EXPECT_EQ(svg.find("<script"), std::string::npos);
}

TEST(DrawVersions, HasABarForEveryVersionAndAColourForEach) {
  const Schedule schedule = lower(pipedream_schedule({1, 1}, 4, 1, Versions::stash));
  const Ledger ledger = make_ledger(schedule, Versions::stash);
  Costs costs = Costs::uniform(2, 1, 1, 1);
  costs.update = {0.5, 0.5};
  const Simulation simulation = simulate(schedule, costs);
  const std::string svg = draw_versions_svg(schedule, simulation, ledger, "stash");
  for (const char* title : {"0F3 v2", "0B3 v2", "1F3 v3", "0U3 v4", "version 0", "version 4"}) {
    EXPECT_NE(svg.find(fmt::format("<title>{}</title>", title)), std::string::npos) << title;
  }
  EXPECT_EQ(svg.find("version 5"), std::string::npos);
  // Rank 0 has two versions at once, so two lanes; rank 1 one: 2 x (20 + 10) + 3 x 9 under a title of 34.
  EXPECT_NE(svg.find("viewBox=\"0 0 960 121\""), std::string::npos) << svg.substr(0, 200);
  // By terminal the shade of an action is its version's: that of micro-batch 1 on rank 1 is another than micro-batch
  // 0's.
  const std::string coloured = draw_text(schedule, simulation, 80, Colours::terminal, ledger);
  EXPECT_NE(coloured.find("48;5;33m"), std::string::npos);
  EXPECT_NE(coloured.find("48;5;39m"), std::string::npos);
}

}  // namespace
}  // namespace stagecoach
