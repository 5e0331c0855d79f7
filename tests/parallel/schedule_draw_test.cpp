// Timelines as text and as pictures.

#include <gtest/gtest.h>

#include <algorithm>

#include "parallel/schedule/draw.h"
#include "parallel/schedule/generators.h"

namespace stagecoach {
namespace {

TEST(DrawSchedule, ShowsLettersNumbersAndIdleMoments) {
  const Schedule schedule = gpipe_schedule(2, 2);
  const Simulation simulation = simulate(schedule, Costs::uniform(2, 1, 1, 1));
  EXPECT_EQ(draw_text(schedule, simulation, 18),
            "rank 0   F0F1......B0--B1--\n"
            "rank 1   ..F0F1B0--B1--....\n");
}

TEST(DrawSchedule, LeavesOutNumbersWithoutRoom) {
  const Schedule schedule = gpipe_schedule(2, 2);
  const Simulation simulation = simulate(schedule, Costs::uniform(2, 1, 1, 1));
  EXPECT_EQ(draw_text(schedule, simulation, 9),
            "rank 0   FF...B0B1\n"
            "rank 1   .FFB0B1..\n");
}

TEST(DrawSchedule, ColoursLeaveTheTextAsItIs) {
  const Schedule schedule = interleaved_schedule(2, 4, 2);
  const Simulation simulation = simulate(schedule, Costs::uniform(4, 1, 1, 1));
  std::string coloured = draw_text(schedule, simulation, 80, Colours::terminal);
  EXPECT_NE(coloured.find("\033[48;5;"), std::string::npos);
  for (std::size_t at = coloured.find('\033'); at != std::string::npos; at = coloured.find('\033')) {
    coloured.erase(at, coloured.find('m', at) - at + 1);
  }
  EXPECT_EQ(coloured, draw_text(schedule, simulation, 80));
}

TEST(DrawSchedule, AsAPictureHasARectangleAnAction) {
  const Schedule schedule = zero_bubble_h1_schedule(3, 4);
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

TEST(Draw, ATraceHasEveryActionOnItsTrack) {
  const Schedule schedule = gpipe_schedule(2, 2);
  const std::string trace = draw_trace(schedule, simulate(schedule, Costs::uniform(2, 1, 1, 1)));
  EXPECT_EQ(trace.rfind("{\"displayTimeUnit\"", 0), 0U);
  EXPECT_NE(trace.find("\"name\":\"1B1\",\"cat\":\"simulated\",\"ph\":\"X\",\"pid\":0,\"tid\":1,"
                       "\"ts\":5000000.000,\"dur\":2000000.000}"),
            std::string::npos)
      << trace;
  EXPECT_EQ(std::count(trace.begin(), trace.end(), 'X'), 8);
}

}  // namespace
}  // namespace stagecoach
