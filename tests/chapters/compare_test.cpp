/// @file
/// What `compare` finds in records that were written by hand, and in those of chapter 1.

#include "tests/chapters/compare.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

namespace stagecoach::test {
namespace {

namespace fs = std::filesystem;

class Compare : public CompareTest {};

TEST_F(Compare, FiguresAreMediansWithoutTheFirstEpoch) {
  write_run("one", {9, 4, 8, 6, 5}, {}, {{"idle", 0.0}});
  write_run("gpipe", {7, 2, 1, 3, 2}, {{"ranks", 4}, {"schedule", "gpipe"}},
            {{"ideal_idle", 0.25}, {"predicted_idle", 0.3125}, {"peak_bytes", {4 << 20, 3 << 20, 2 << 20, 1 << 19}}});
  const Outcome outcome = compare({"one", "gpipe"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const std::map<std::string, std::string> expected{{"program", "ch03_gpipe"},
                                                    {"schedule", "gpipe"},
                                                    {"ranks", "4"},
                                                    {"clock", "wall"},
                                                    {"epochs", "5"},
                                                    {"epoch time", "2.000 s"},  // of 2 1 3 2
                                                    {"speed-up", "2.75"},       // 4 8 6 5 has the median 5.5
                                                    {"ideal speed-up", "3.00"},
                                                    {"idle", "25.0%"},  // of 10 20 30 40
                                                    {"predicted idle", "31.2%"},
                                                    {"peak MiB", "4.0 3.0 2.0 0.5"},
                                                    {"loss", "0.5000"},
                                                    {"acc", "0.250"},
                                                    {"test acc", "0.125"}};
  for (const auto& [column, text] : expected) {
    EXPECT_EQ(cell(outcome, "gpipe", column), text) << column;
  }
  EXPECT_EQ(cell(outcome, "one", "epoch time"), "5.500 s");
  EXPECT_EQ(cell(outcome, "one", "speed-up"), "1.00");
  EXPECT_EQ(cell(outcome, "one", "schedule"), "-");
  EXPECT_EQ(cell(outcome, "one", "predicted idle"), "-");
}

TEST_F(Compare, NamesAndSettingsGiveATerminalNoOrders) {
  write_run("\033[31mred\n", {3, 2}, {{"schedule", "g\u202epipe\033c"}, {"model", "\007"}});
  write_run("plain", {3, 1}, {{"model", "convnet"}});
  const Outcome outcome = compare({"\033[31mred\n", "plain"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  expect_texts(outcome.out, {"\\x1b[31mred\\n", "g\\u202epipe\\x1bc", "instead of \\x07"});
  EXPECT_EQ(outcome.out.find('\033'), std::string::npos);
  write("\033[31mred\n/metrics.jsonl", "damaged");
  const Outcome damaged = compare({"\033[31mred\n"});
  EXPECT_EQ(damaged.exit_code, 3);
  EXPECT_EQ(std::count(damaged.err.begin(), damaged.err.end(), '\n'), 1) << damaged.err;
  expect_texts(damaged.err, {"\\x1b[31mred\\n/metrics.jsonl, line 1"});
}

TEST_F(Compare, OneEpochIsItsOwnMedian) {
  write_run("a", {3});
  write_run("b", {1.5});
  const Outcome outcome = compare({"a", "b"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(cell(outcome, "b", "epoch time"), "1.500 s");
  EXPECT_EQ(cell(outcome, "b", "speed-up"), "2.00");
}

TEST_F(Compare, BaselineIsAnyRun) {
  write_run("a", {3, 2});
  write_run("b", {3, 4});
  write_run("c", {3, 1});
  const Outcome among = compare({"a", "b", "--baseline", "./b/"});
  EXPECT_EQ(cell(among, "a", "speed-up"), "2.00");
  EXPECT_EQ(cell(among, "b", "speed-up"), "1.00");
  EXPECT_EQ(cell(compare({"a", "b/metrics.jsonl", "--baseline", "b"}), "a", "speed-up"), "2.00");
  const Outcome besides = compare({"--baseline", "b", "c", "a"});
  EXPECT_EQ(cell(besides, "c", "speed-up"), "4.00");
  EXPECT_EQ(cell(besides, "b", "speed-up"), "1.00");
  EXPECT_NE(besides.out.find("Speed-up: over b."), std::string::npos) << besides.out;
}

TEST_F(Compare, AMasterIsNoRankThatComputes) {
  write_run("one", {3, 2});
  write_run("remote", {3, 2}, {{"ranks", 3}, {"form", "remote"}}, {{"ideal_idle", 0.25}});
  EXPECT_EQ(cell(compare({"one", "remote"}), "remote", "ideal speed-up"), "1.50");
}

TEST_F(Compare, EachBaselineIsForTheRunsFromItUpToTheNext) {
  write_run("a", {3, 2});
  write_run("b", {3, 4});
  write_run("slow", {3, 10}, {{"ranks", 2}}, {{"clock", "virtual"}});
  write_run("fast", {3, 5}, {}, {{"clock", "virtual"}});
  const Texts runs{"a", "b", "slow", "fast", "--svg", "plot.svg"};
  EXPECT_EQ(compare(runs).exit_code, 2) << "virtual times are not wall times";
  Texts both = runs;
  both.insert(both.end(), {"--baseline", "slow", "--baseline", "b"});
  const Outcome outcome = compare(both);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const auto& [run, speed_up] : {std::pair("a", "2.00"), {"b", "1.00"}, {"slow", "1.00"}, {"fast", "2.00"}}) {
    EXPECT_EQ(cell(outcome, run, "speed-up"), speed_up) << run;
  }
  expect_texts(outcome.out,
               {"Speed-up: over b;\nfrom slow on, over slow.\n", "note: the speed-up is over slow with its 2"});
  const std::string svg = read_bytes(folder() / "plot.svg");
  EXPECT_NE(svg.find(">baseline<"), svg.rfind(">baseline<"));
  expect_error({"a", "b", "--baseline", "a", "--baseline", "slow"}, 2, {"--baseline slow", "name it as a RUN too"});
}

TEST_F(Compare, ManyRanksShowTheLargestPeak) {
  write_run("wide", {1, 1}, {{"ranks", 6}}, {{"peak_bytes", {1, 2 << 20, 7 << 20, 3, 4, 5}}});
  const Outcome outcome = compare({"wide"});
  EXPECT_EQ(cell(outcome, "wide", "peak MiB"), "7.0 (rank 2)");
  EXPECT_NE(outcome.out.find("6 ranks"), std::string::npos) << "the ideal is over one device: " << outcome.out;
}

TEST_F(Compare, ARestartedEpochCountsOnceAndAsItEndedLast) {
  write_run("a", {8, 8, 8});
  const std::string again = read_bytes(folder() / "a/metrics.jsonl");
  write_run("a", {1, 1, 1});
  const std::string before = read_bytes(folder() / "a/metrics.jsonl");
  write("a/metrics.jsonl", before + "{\"event\":\"resumed\"}\n\n" + again.substr(again.find('\n') + 1));
  const Outcome outcome = compare({"a"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(cell(outcome, "a", "epochs"), "3");
  EXPECT_EQ(cell(outcome, "a", "epoch time"), "8.000 s");
}

TEST_F(Compare, ColumnsLineUpWhateverTheNames) {
  write_run("a run with a long name", {12.5, 123.456});
  write_run("Größe-läuft", {1, 1});
  write_run("計測", {1, 1});
  const Outcome outcome = compare({"a run with a long name", "Größe-läuft", "計測"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  std::istringstream lines(outcome.out);
  std::vector<std::size_t> columns;
  for (std::string line; std::getline(lines, line) && !line.empty();) {
    // Each ö, ß and ä is a byte longer than it is wide; each of the two signs, 3 bytes, takes two columns.
    std::size_t width = line.size();
    for (const auto& [letter, excess] : {std::pair("ö", 1), {"ß", 1}, {"ä", 1}, {"計", 1}, {"測", 1}}) {
      width -= static_cast<std::size_t>(line.find(letter) != std::string::npos ? excess : 0);
    }
    columns.push_back(width);
  }
  ASSERT_EQ(columns.size(), 4U) << outcome.out;
  EXPECT_EQ(columns, std::vector<std::size_t>(4, columns[0])) << outcome.out;
}

TEST_F(Compare, ColumnsAreLeftOutUntilTheTableFits) {
  const nlohmann::json settings{{"ranks", 4}, {"schedule", "interleaved"}};
  const nlohmann::json figures{{"predicted_idle", 0.25}, {"peak_bytes", {9 << 20, 8 << 20, 7 << 20, 6 << 20}}};
  write_run("one", {1, 1});
  write_run("interleaved_with_2_chunks", {2, 1}, settings, figures);
  const Outcome outcome = run(kCompare, {"one", "interleaved_with_2_chunks"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::string heading = outcome.out.substr(0, outcome.out.find('\n'));
  EXPECT_LE(heading.size(), 100U);
  EXPECT_EQ(heading, "run                        epoch time  speed-up  ideal speed-up   idle         peak MiB   loss");
  expect_texts(outcome.out,
               {"Left out: program, clock, epochs, acc, ranks, predicted idle, schedule, test acc; --wide"});
  const Outcome wide = run(kCompare, {"one", "interleaved_with_2_chunks", "--wide"});
  for (const char* column : {"program", "clock", "predicted idle", "schedule", "test acc"}) {
    EXPECT_NE(cell(wide, "one", column), "no such column") << column;
  }
  EXPECT_EQ(wide.out.find("Left out"), std::string::npos);
  write("a.log", "Epoch: 1, Loss: 2, acc: 0.5, time cost: 1s\n");  // what no run knows is not shown
  EXPECT_EQ(run(kCompare, {"a.log"}).out.substr(0, 62),
            "run    clock  epochs  epoch time  speed-up   loss    acc\na.log");
}

TEST_F(Compare, NamesTakeAsMuchOfThePathAsTheyNeed) {
  for (const char* name : {"x/gpipe", "y/gpipe", "y/one"}) {
    write_run(name, {1, 2});
  }
  const Outcome outcome = compare({"x/gpipe/", "y/./gpipe/metrics.jsonl", "y/one", "y/one"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* name : {"x/gpipe", "y/gpipe", "one", "one (2)"}) {
    EXPECT_EQ(cell(outcome, name, "epoch time"), "2.000 s") << name;
  }
}

TEST_F(Compare, Markdown) {
  write_run("a|b", {1, 2});
  const Outcome outcome = compare({"a|b", "--markdown"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  expect_texts(outcome.out,
               {"| run | program | ranks |", "\n|---|---|---:|", "\n| a\\|b | ch03_gpipe | 1 | wall | 2 |"});
}

TEST_F(Compare, ChapterOne) {
  make_data(800, 40);
  const auto train = [&](const std::string& out, Texts more) {
    more.insert(more.end(), {"--data", "data", "--epochs", "2", "--out", out});
    return ch01(more);
  };
  const Outcome trained = train("runs/one", {});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  write("one.log", trained.out);
  ASSERT_EQ(train("runs/four", {"--microbatches", "4"}).exit_code, 0);
  const Outcome outcome = compare({"runs/one", "runs/four", "one.log", "--svg", "plot.svg"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out.find("note:"), std::string::npos) << "all settings are known: " << outcome.out;
  for (const char* run : {"one", "four", "one.log"}) {
    EXPECT_EQ(cell(outcome, run, "program"), "ch01_single_device");
    EXPECT_EQ(cell(outcome, run, "ranks"), "1");
    EXPECT_EQ(cell(outcome, run, "epochs"), "2");
    EXPECT_EQ(cell(outcome, run, "ideal speed-up"), "1.00");
    EXPECT_EQ(cell(outcome, run, "loss").substr(0, 3), "2.3");
  }
  ASSERT_EQ(train("runs/small", {"--batch-size", "32"}).exit_code, 0);
  expect_refusal("runs/one", "runs/small", {});
}

}  // namespace
}  // namespace stagecoach::test
