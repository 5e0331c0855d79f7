// Timelines as text and as figures; those of schedules are in tests/parallel/schedule_draw_test.cpp.
#include "parallel/drawing/timeline.h"

#include <gtest/gtest.h>

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
            "work  long----..s-....\n"
            "link          message=====\n"
            "      work, message,\n"
            "      . idle\n");
  EXPECT_EQ(timeline_text(two_rows(), {.columns = 16}).substr(0, 15 + 17),
            "work  long.s..\n"
            "link      |=====\n");
}

TEST(TimelineText, WithAllLabelsTakesBlocks) {
  TimelineChart chart = two_rows();
  chart.shows_all_labels = true;
  chart.rows[1].bars.erase(chart.rows[1].bars.begin());
  EXPECT_EQ(timeline_text(chart, {.columns = 41}),
            "      time 0\n"
            "work  long----------------.....short.....\n"
            "link                      message========\n"
            "      time 7\n"
            "work  .....\n"
            "link  ===============\n"
            "      work, message, . idle\n");
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
