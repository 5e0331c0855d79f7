/// @file
/// The facts and the page of a report: `compare --html` and `--report`.

#include <fmt/format.h>

#include "tests/chapters/compare.h"

namespace stagecoach::test {
namespace {

using Json = nlohmann::json;

class Report : public CompareTest {
 protected:
  std::string page(Texts runs) {
    runs.insert(runs.end(), {"--html", "report.html"});
    compare(runs);
    return read_bytes(folder() / "report.html");
  }

  /// Returns what the page shows.
  static Json facts_in(const std::string& page) {
    const std::string begin = "<script id=\"facts\" type=\"application/json\">";
    const std::size_t at = page.find(begin) + begin.size();
    return Json::parse(page.substr(at, page.find("</script>", at) - at));
  }
};

TEST_F(Report, HasTheFiguresOfTheRunsAndTheSettingsThatDiffer) {
  const Json parts{{"ideal", 0.5}, {"bubble", 0.25}};
  write_run("one", {2, 3}, {{"ranks", 1}});
  write_run("four", {1, 1}, {{"ranks", 4}, {"command", "ch03_gpipe --ranks 4"}},
            {{"steps", 16}, {"links", {{0, 1, 4096.0}}}, {"delays", {1, 0}}, {"step_parts", parts}});
  for (const char* run : {"one", "four"}) {
    write(std::string(run) + "/weights.safetensors", "equal");
  }
  const Json facts = facts_in(page({"one", "four"}));
  EXPECT_EQ(facts["baselines"], Json({0, 0}));
  EXPECT_EQ(facts["equal_bytes"], Json::array({{0, 1}}));
  EXPECT_EQ(facts["settings"], Json::array({{{"name", "ranks"}, {"values", {"1", "4"}}}}));
  const Json& four = facts["runs"][1];
  EXPECT_EQ(four["speed_up"], 3);
  EXPECT_EQ(four["links"], Json::array({{0, 1, 4096.0}}));
  EXPECT_EQ(four["delays"], Json({1, 0}));
  EXPECT_EQ(four["command"], "ch03_gpipe --ranks 4");
  EXPECT_EQ(four["epochs"][1]["step_parts"], parts);
  EXPECT_EQ(four["trace"]["omitted"], "the run has no trace.json");
}

TEST_F(Report, SaysWhatIsNotComparable) {
  write_run("a", {2});
  write_run("b", {2}, {{"batch-size", 32}});
  const Json facts = facts_in(page({"a", "b"}));
  ASSERT_EQ(facts["reasons"].size(), 1U);
  EXPECT_TRUE(facts["runs"][1]["speed_up"].is_null());
}

TEST_F(Report, NoNameEndsTheElementThatHoldsTheFacts) {
  const std::string name =
      "<img onerror=x> <"
      "script>";
  write_run(name, {2});
  const std::string html = page({name});
  EXPECT_EQ(html.find("<img"), std::string::npos);
  EXPECT_EQ(facts_in(html)["runs"][0]["name"], name);
}

TEST_F(Report, OfPlansOrOfADamagedTraceIsRefused) {
  write_run("run", {2});
  write("run/trace.json", "{\"traceEvents\":[{}]}");
  expect_error({"run", "--html", "report.html"}, 3, {"run/trace.json", "expected a trace of a run", "remove the file"});
  write("run/trace.json", "{");
  expect_error({"run", "--html", "report.html"}, 3, {"run/trace.json", "not valid JSON"});
  ASSERT_EQ(run(program_path("ch03_gpipe"), {"--smoke", "--explain", "--clock", "modelled", "--out", "plan"}).exit_code,
            0);
  expect_error({"plan", "--html", "report.html"}, 2, {"--html shows runs, and plan is a plan"});
}

TEST_F(Report, OfARunHasItsStepsAndEndsInItsFolder) {
  const Outcome outcome =
      run(program_path("ch03_gpipe"), {"--smoke", "--clock", "modelled", "--link", "pcie4", "--ranks", "4",
                                       "--microbatches", "8", "--epochs", "1", "--out", "run", "--report"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::string html = read_bytes(folder() / "run/report.html");
  EXPECT_LT(html.size(), 400'000U);
  const Json facts = facts_in(html);
  const Json& run = facts["runs"][0];
  const Json& step = run["trace"]["steps"][1];
  ASSERT_EQ(step["measured"].size(), 4U);
  for (std::size_t rank = 0; rank < 4; ++rank) {
    const Json& actions = step["measured"][rank];
    ASSERT_EQ(actions.size(), 3 * 17U) << "eight forwards, eight backwards and the update";
    EXPECT_EQ(actions[0], fmt::format("{}F0", rank));
    EXPECT_EQ(actions[48], "U");
    EXPECT_EQ(step["predicted"][rank].size(), actions.size());
    EXPECT_GT(step["memory"][rank].size(), 8U);
    for (std::size_t i = 3; i < actions.size(); i += 3) {
      EXPECT_LE(actions[i - 2].get<int>() + actions[i - 1].get<int>(), actions[i + 1].get<int>())
          << "waits are cut off";
    }
  }
  EXPECT_EQ(step["arrivals"].size(), 2 * 6 * 8U) << "a forward and a backward message of each border and micro-batch";
  double sum = 0;
  for (const auto& [name, seconds] : run["epochs"][0]["step_parts"].items()) {
    sum += seconds.get<double>();
  }
  const double measured = run["seconds"].get<double>() / run["epochs"][0]["steps"].get<double>();
  EXPECT_NEAR(sum, measured, 1e-9 * measured);
  EXPECT_NEAR(step["eighths"].get<double>() / 8e6, measured, 0.02 * measured)
      << "a rank that is done early with a step waits in the next one, which has not begun";
  EXPECT_EQ(run["links"].size(), 6U);
  EXPECT_EQ(run["predicted_memory"].size(), 4U);
}

// What a rank does between an update and its next step counts in the first step, too: otherwise it would be less idle
// than not at all.
TEST_F(Report, OfOneRankIsNotIdle) {
  const Outcome outcome = run(program_path("ch03_gpipe"), {"--smoke", "--clock", "virtual", "--ranks", "1", "--epochs",
                                                           "2", "--out", "run", "--report"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NEAR(facts_in(read_bytes(folder() / "run/report.html"))["runs"][0]["predicted_idle"].get<double>(), 0, 1e-9);
}

TEST_F(Report, DoesNotReplaceAFileOfARun) {
  write_run("run", {2});
  expect_error({"run", "--html", "run/metrics.jsonl"}, 2, {"--html: run/metrics.jsonl is a file of the run run"});
  expect_error({"run", "--svg", "run/config.json"}, 2, {"--svg: run/config.json is a file of the run run"});
  expect_error({"run", "--svg", "both", "--html", "both"}, 2, {"expected two files"});
  page({"run"});
}

TEST_F(Report, OfARunOfAnOlderProgramTakesItsPredictions) {
  write_run("run", {2}, {}, {{"predicted_idle", -0.02}});
  EXPECT_EQ(facts_in(page({"run"}))["runs"][0]["predicted_idle"], 0);
}

TEST_F(Report, NeedsAFolder) {
  const Outcome outcome = run(program_path("ch03_gpipe"), {"--smoke", "--report"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.err.find("--report: a report shows what a training wrote to its folder"), std::string::npos);
}

}  // namespace
}  // namespace stagecoach::test
