// The program that draws tables.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>
#include <utility>

namespace stagecoach {
namespace {

/// The exit code, and what came on standard output and standard error.
std::pair<int, std::string> draw(const std::string& table, const std::string& flags) {
  const std::string command = "printf '" + table + "' | " STAGECOACH_LINE_CHART " " + flags + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  std::string output;
  for (std::array<char, 4096> part{}; const std::size_t count = fread(part.data(), 1, part.size(), pipe);) {
    output.append(part.data(), count);
  }
  return {WEXITSTATUS(pclose(pipe)), output};
}

TEST(LineChart, DrawsACurvePerColumn) {
  const auto [code, svg] = draw("size,measured,<b>\\n1,20,10\\n4,10,5\\n", "--log-x --title 'A & B'");
  EXPECT_EQ(code, 0);
  for (const char* part : {">A &amp; B<", ">size<", ">measured<", ">&lt;b&gt;<", "</svg>"}) {
    EXPECT_NE(svg.find(part), std::string::npos) << part << " is not in\n" << svg;
  }
}

TEST(LineChart, RefusesATableThatItCannotDraw) {
  EXPECT_EQ(draw("", "").second,
            "line_chart: the table is empty: expected a line of names and lines of numbers, separated by commas\n");
  EXPECT_EQ(draw("x,y\\n1,2\\n3\\n", "").second, "line_chart: line 3: expected 2 values, got 1\n");
  EXPECT_EQ(draw("x,y\\n1,two\\n", "").second, "line_chart: line 2: expected a number, got 'two'\n");
  EXPECT_EQ(draw("x,y\\n1,nan\\n", "").first, 0) << "a gap";
  EXPECT_EQ(draw("x,y\\n0,1\\n", "--log-x").first, 3);
  EXPECT_EQ(draw("x\\n", "").first, 3);
}

}  // namespace
}  // namespace stagecoach
