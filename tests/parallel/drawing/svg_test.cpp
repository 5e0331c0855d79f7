// Elements of an SVG figure.
#include "parallel/drawing/svg.h"

#include <gtest/gtest.h>

namespace stagecoach {
namespace {

TEST(Svg, TextsAreNoMarkup) {
  Svg svg;
  svg.text(1, 2, "<b> & \"c\"\033[31m");
  svg.box({0, 0, 1, 1}, "#000000", 1, "</title><script>");
  const std::string figure = svg.str(10, 20);
  EXPECT_NE(figure.find("viewBox=\"0 0 10 20\""), std::string::npos);
  EXPECT_NE(figure.find(">&lt;b&gt; &amp; &quot;c&quot;\\x1b[31m</text>"), std::string::npos) << figure;
  EXPECT_NE(figure.find("<title>&lt;/title&gt;&lt;script&gt;</title>"), std::string::npos) << figure;
}

TEST(Svg, OfATextWithoutRoomTheEndIsShown) {
  Svg svg;
  svg.text(0, 0, "runs/äö/gpipe", {}, Svg::width_of("ö/gpipe!"));
  const std::string figure = svg.str(10, 10);
  EXPECT_NE(figure.find(">\u2026ö/gpipe<title>runs/äö/gpipe</title></text>"), std::string::npos) << figure;
}

TEST(Svg, WidthsCountCharacters) { EXPECT_DOUBLE_EQ(Svg::width_of("äö"), Svg::width_of("ao")); }

}  // namespace
}  // namespace stagecoach
