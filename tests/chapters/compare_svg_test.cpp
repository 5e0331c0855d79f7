/// @file
/// The figure that `compare --svg` draws.

#include <fmt/format.h>

#include <iterator>
#include <regex>

#include "tests/chapters/compare.h"

namespace stagecoach::test {
namespace {

namespace fs = std::filesystem;

class CompareSvg : public CompareTest {};

TEST_F(CompareSvg, Svg) {
  write_run("<a> & \"b\"", {2, 3}, {}, {{"predicted_seconds", 1.5}});
  write_run("diverged", {2, 1}, {}, {{"loss", nullptr}});
  Texts arguments{"<a> & \"b\"", "diverged", "--svg", "plot.svg"};
  for (int i = 0; i < 10; ++i) {
    write_run(fmt::format("more{}", i), {2, 1.0 + i});
    arguments.push_back(fmt::format("more{}", i));
  }
  const Outcome outcome = compare(arguments);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(cell(outcome, "diverged", "loss"), "nan");
  const std::string svg = read_bytes(folder() / "plot.svg");
  EXPECT_EQ(svg.rfind("<svg xmlns=\"http://www.w3.org/2000/svg\"", 0), 0U);
  expect_texts(svg,
               {">&lt;a&gt; &amp; &quot;b&quot;<", ">baseline<", "predicted: 1.500 s", "rank 0: 1.0 MiB", "</svg>\n"});
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  const auto count = [&](const std::string& pattern) {
    const std::regex wanted(pattern);
    return std::distance(std::sregex_iterator(svg.begin(), svg.end(), wanted), {});
  };
  EXPECT_EQ(count("<polyline "), 5) << "a loss, two accuracies, and two strokes in the legend: 11 losses coincide";
  EXPECT_EQ(count("<title>rank 0: "), 12) << "a bar per run's memory";
  EXPECT_EQ(count("fill=\"none\" stroke=\"#222222\"><title>predicted: "), 1) << "an outline for the one prediction";
  EXPECT_EQ(count("<(svg|text|rect|line|polyline|circle|title)( [^<>]*[^/])?>"), count("</[a-z]+>")) << "balanced";
  EXPECT_EQ(count("<"), count(">"));
}

TEST_F(CompareSvg, SvgOfOneEpochAndOfGaps) {
  write_run("a", {2});
  ASSERT_EQ(compare({"a", "--svg", "one.svg"}).exit_code, 0);
  expect_texts(read_bytes(folder() / "one.svg"), {"<circle "});
  write("gap.log",
        "Epoch: 1, Loss: 1, acc: 0, time cost: 1s\nEpoch: 2, Loss: nan, acc: 0, time cost: 1s\n"
        "Epoch: 3, Loss: inf, acc: 0, time cost: 1s\nEpoch: 4, Loss: 1e-3, acc: 0, time cost: 1s\n");
  ASSERT_EQ(compare({"gap.log", "--svg", "gap.svg"}).exit_code, 0);
  const std::string svg = read_bytes(folder() / "gap.svg");
  EXPECT_EQ(svg.find("<polyline"), svg.rfind("<polyline")) << "the legend's; no line leads over a gap";
  EXPECT_NE(svg.find("<circle"), svg.rfind("<circle"));
}

TEST_F(CompareSvg, RunsWhoseLossesCoincideShareACurve) {
  for (const char* name : {"one", "same", "other_bytes", "no_weights"}) {
    write_run(name, {2, 1});
  }
  write_run("other_losses", {2, 1}, {}, {{"loss", 1.5}});
  const auto draw = [&](Texts runs) {
    runs.insert(runs.end(), {"--svg", "plot.svg"});
    EXPECT_EQ(compare(runs).exit_code, 0);
    return read_bytes(folder() / "plot.svg");
  };
  write("one/weights.safetensors", "weights");
  write("same/weights.safetensors", "weights");
  write("other_bytes/weights.safetensors", "Weights");
  write("other_losses/weights.safetensors", "weights");
  const std::string svg = draw({"one", "same", "other_losses"});
  expect_texts(svg, {">one, same: identical bytes<", ">other_losses<"});
  EXPECT_EQ(svg.find("losses coincide"), std::string::npos);
  expect_texts(draw({"one", "other_bytes"}), {">one, other_bytes: losses coincide<"});
  write_run("rounded", {2, 1});
  write("rounded/weights.safetensors", "weights");
  std::string metrics = read_bytes(folder() / "rounded/metrics.jsonl");
  metrics.replace(metrics.find("\"loss\":2.5"), 10, "\"loss\":2.5000001");
  write("rounded/metrics.jsonl", metrics);
  expect_texts(draw({"one", "rounded"}), {">one, rounded: identical bytes<"});
  expect_texts(draw({"no_weights", "one"}), {">no_weights, one: losses coincide<"});
}

TEST_F(CompareSvg, SvgThatCannotBeWrittenKeepsTheOlderFile) {
  write_run("a", {1, 1});
  write("plot.svg", "older");
  expect_error({"a", "--svg", "nowhere/plot.svg"}, 3, {"nowhere/plot.svg"});
  expect_error({"a", "--svg", "a"}, 3, {"a"});
  const Outcome full = shell("trap '' XFSZ; ulimit -f 1; exec " + kCompare + " a --svg plot.svg");
  EXPECT_EQ(full.exit_code, 3) << full.err;
  EXPECT_EQ(read_bytes(folder() / "plot.svg"), "older");
}

}  // namespace
}  // namespace stagecoach::test
