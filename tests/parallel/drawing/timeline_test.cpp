// Timelines as text and as figures; those of schedules are in tests/parallel/schedule_draw_test.cpp.
#include "parallel/drawing/timeline.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace stagecoach {
namespace {

TimelineChart two_rows() {
  return {.title = "two rows",
          .unit = "ms",
          .length = 10,
          .rows = {{.name = "work",
                    .bars = {{.begin = 0, .end = 4, .label = "long", .mark = 'l'},
                             {.begin = 5, .end = 6, .label = "short", .title = "a < b", .mark = 's'}},
                    .end = 8},
                   {.name = "link",
                    .bars = {{.begin = 2, .end = 2.01, .label = "tiny"},
                             {.begin = 4, .end = 10, .colour = kGreen, .label = "message", .mark = '|', .fill = '='}},
                    .shows_idle = false}},
          .legend = {{"work", kSkyBlue}, {"message", kGreen}},
          .idle_name = "idle"};
}

TEST(TimelineText, CutsLabelsWithoutRoomToTheirMarks) {
  EXPECT_EQ(timeline_text(two_rows(), {.columns = 26}),
            "time  0         5\n"
            "work  long----..s-....\n"
            "link          message=====\n"
            "      work, message,\n"
            "      . idle\n");
  EXPECT_EQ(timeline_text(two_rows(), {.columns = 16}).substr(0, 8 + 15 + 17),
            "time  0\n"
            "work  long.s..\n"
            "link      |=====\n");
}

TEST(TimelineText, WithAllLabelsTakesBlocks) {
  TimelineChart chart = two_rows();
  chart.shows_all_labels = true;
  chart.rows[1].bars.erase(chart.rows[1].bars.begin());
  EXPECT_EQ(timeline_text(chart, {.columns = 41}),
            "time  0         2         4         6\n"
            "work  long----------------.....short.....\n"
            "link                      message========\n"
            "time       8         10\n"
            "work  .....\n"
            "link  ===============\n"
            "      work, message, . idle\n");
}

TEST(TimelineText, ShowsSecondsInMilliseconds) {
  EXPECT_EQ(timeline_text({.unit = "s", .length = 0.004, .rows = {{.name = "host"}}}, {.columns = 46}),
            "ms    0         1         2         3\n"
            "host  ........................................\n");
}

TEST(TimelineText, NumbersOfTheAxisNeverMeet) {
  for (const double length : {1e-7, 0.03, 1.0, 7.7, 999.0, 1e5, 3e9}) {
    const std::string axis = timeline_text({.unit = "s", .length = length, .rows = {{}}}, {.columns = 120});
    double last = -1;
    std::istringstream numbers(axis.substr(2, axis.find('\n') - 2));
    int count = 0;
    for (std::string number; numbers >> number; ++count) {
      ASSERT_GT(std::stod(number), last) << axis;
      last = std::stod(number);
    }
    EXPECT_GE(count, 5) << axis;
    EXPECT_LE(last, 1e3 * length) << axis;
  }
}

TEST(TimelineText, InColourABarBeginsDarkerWhereItTouchesOneLikeItAndTheLegendIsColoured) {
  const TimelineChart chart{.length = 6,
                            .rows = {{.bars = {{.begin = 0, .end = 2, .label = "a"},
                                               {.begin = 2, .end = 4, .label = "b"},
                                               {.begin = 4, .end = 6, .colour = kOrange, .label = "c"}}}},
                            .legend = {{"work", kSkyBlue}}};
  const auto text = timeline_text(chart, {.columns = 12, .colours = true});
  const auto on = [](int colour) { return fmt::format("\033[48;5;{}m\033[30m", colour); };
  EXPECT_EQ(text, "time  0    5\n      " + on(74) + "a-" + on(67) + "b" + on(74) + "-" + on(214) + "c-\033[0m\n      " +
                      on(74) + "work\033[0m\n");
}

TEST(TimelineText, OfNothing) {
  EXPECT_EQ(timeline_text({}, {}), "");
  EXPECT_EQ(timeline_text({.rows = {{.name = "rank 0"}}}, {.columns = 12}), "rank 0  .\n");
}

TEST(TimelineSvg, HasBarsALegendAndAnAxis) {
  const std::string svg = timeline_svg(two_rows());
  for (const char* part : {">two rows</text>", ">time (ms)</text>", ">idle</text>", ">message</text>",
                           "<title>a &lt; b</title>", ">10</text>", "viewBox=\"0 0 960 136\""}) {
    EXPECT_NE(svg.find(part), std::string::npos) << part << " is not in\n" << svg;
  }
}

TEST(TimelineSvg, IsAsWideAsItsLabelsNeed) {
  TimelineChart chart = two_rows();
  chart.length = 100;
  EXPECT_NE(timeline_svg(chart).find("viewBox=\"0 0 960 "), std::string::npos);
  chart.shows_all_labels = true;
  EXPECT_EQ(timeline_svg(chart).find("viewBox=\"0 0 960 "), std::string::npos);
  EXPECT_NE(timeline_svg(chart).find(">short</text>"), std::string::npos);
}

}  // namespace
}  // namespace stagecoach
