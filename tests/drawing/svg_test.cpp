// Elements of an SVG picture.
#include "drawing/svg.h"

#include <gtest/gtest.h>

namespace stagecoach {
namespace {

TEST(Svg, TextsAreNoMarkup) {
  Svg svg;
  svg.text(1, 2, "<b> & \"c\"\033[31m");
  svg.box({0, 0, 1, 1}, "#000000", 1, "</title><script>");
  const std::string picture = svg.str(10, 20);
  EXPECT_NE(picture.find("viewBox=\"0 0 10 20\""), std::string::npos);
  EXPECT_NE(picture.find(">&lt;b&gt; &amp; &quot;c&quot;\\x1b[31m</text>"), std::string::npos) << picture;
  EXPECT_NE(picture.find("<title>&lt;/title&gt;&lt;script&gt;</title>"), std::string::npos) << picture;
}

TEST(Svg, OfATextWithoutRoomTheEndIsShown) {
  Svg svg;
  svg.text(0, 0, "runs/äö/gpipe", {}, Svg::width_of("ö/gpipe!"));
  const std::string picture = svg.str(10, 10);
  EXPECT_NE(picture.find(">\u2026ö/gpipe<title>runs/äö/gpipe</title></text>"), std::string::npos) << picture;
}

TEST(Svg, WidthsCountCharacters) { EXPECT_DOUBLE_EQ(Svg::width_of("äö"), Svg::width_of("ao")); }

}  // namespace
}  // namespace stagecoach
