// The program advise: predictions against runs on the modelled clock, plans against --explain, and bad questions.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <sstream>

#include "core/base/parse_json.h"
#include "core/base/text_file.h"
#include "tests/chapters/program.h"

namespace stagecoach::test {
namespace {

using Json = nlohmann::ordered_json;
using Flags = std::vector<std::string>;

const Flags kSmall{"--model", "vit",   "--depth",      "2",  "--width",        "64",  "--heads", "2",
                   "--link",  "pcie4", "--batch-size", "16", "--device-model", "h100"};

Flags with(Flags flags, const Flags& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

class AdviseProgram : public ProgramTest {
 protected:
  /// Expects that the plan for one mesh, [dp, pp, tp], is that of chapter 8, which gets `data`, too.
  void expect_plan_of_chapter_8(const Flags& flags, const std::vector<int>& mesh, const std::string& schedule,
                                const Flags& data = {}) {
    const std::string sizes = fmt::format("dp={},pp={},tp={}", mesh[0], mesh[1], mesh[2]);
    SCOPED_TRACE(sizes + " " + schedule);
    const auto number = [](int value) { return std::to_string(value); };
    const Outcome outcome = advise(with(flags, {"--ranks", number(mesh[0] * mesh[1] * mesh[2]), "--dp", number(mesh[0]),
                                                "--pp", number(mesh[1]), "--tp", number(mesh[2]), "--microbatches", "4",
                                                "--recompute", "false", "--schedules", schedule, "--json"}));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const Json plan = parse_json<Json>(outcome.out, "advise").at(0);
    const std::string split = fmt::format("{}", fmt::join(plan.at("split").get<std::vector<int>>(), ","));
    Flags given = with(flags, data);
    if (mesh[0] > 1 && std::find(flags.begin(), flags.end(), "--bucket-size") == flags.end()) {
      given = with(given, {"--bucket-size", fmt::format("{}", plan.at("bucket_bytes").get<std::int64_t>())});
    }
    const Outcome explained =
        run(kCh08, with(given, {"--mesh", sizes, "--microbatches", "4", "--schedule", schedule, "--split", split,
                                "--clock", "modelled", "--explain", "--out", "plan"}));
    ASSERT_EQ(explained.exit_code, 0) << explained.err;
    const Json expected = parse_json<Json>(read_text(folder() / "plan/prediction.json", ""), "prediction.json");
    const double seconds = expected.at("step_seconds");
    EXPECT_NEAR(plan.at("step_seconds").get<double>(), seconds, 1e-3 * seconds);
    EXPECT_EQ(plan.at("link_bytes"), expected.at("link_bytes"));
  }
  Outcome advise(const Flags& flags) { return run(program_path("advise"), flags); }
  /// A profile of two layers, with this in the first one.
  void write_profile(const std::string& cost) {
    const std::string rest =
        R"("backward_input_seconds": 0.001, "backward_weight_seconds": 0.001, "kept_bytes": 1048576, "freed_bytes": 0,
           "output_bytes": 65536, "parameter_bytes": 4194304, "workspace_bytes": 0})";
    write_text(folder() / "mine.json",
               R"({"model": "mine", "device": "cuda", "microbatch": 8, "layers": [{"name": "a", )" + cost + ", " +
                   rest + R"(, {"name": "b", "forward_seconds": 0.001, )" + rest + "]}");
  }
};

/// Returns by how many percent predictions differ from runs, one number per plan.
std::vector<double> differences(const std::string& text) {
  std::vector<double> found;
  std::istringstream lines(text.substr(text.find("run on the modelled clock")));
  for (std::string line; std::getline(lines, line);) {
    if (const auto end = line.find('%'); end != std::string::npos) {
      found.push_back(std::stod(line.substr(end - 8, 8)));
    }
  }
  return found;
}

TEST_F(AdviseProgram, PredictsWhatRunsTake) {
  for (const Flags& mesh : {Flags{"--dp", "1", "--tp", "1"}, {"--pp", "1", "--tp", "1", "--recompute", "false"}}) {
    const Outcome outcome = advise(with(with(kSmall, mesh), {"--ranks", "2", "--top", "4", "--verify", "4"}));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const std::vector<double> percent = differences(outcome.out);
    EXPECT_FALSE(percent.empty()) << outcome.out;
    for (const double difference : percent) {
      EXPECT_NEAR(difference, 0, 0.1) << outcome.out;
    }
  }
}

TEST_F(AdviseProgram, PredictsWhatRunsOfGptTake) {
  const Flags small{"--model",      "gpt", "--depth", "2", "--width", "32", "--heads", "2",    "--context", "16",
                    "--batch-size", "8",   "--ranks", "2", "--tp",    "1",  "--link",  "pcie4"};
  const Outcome outcome = advise(with(small, {"--top", "3", "--verify", "3"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::vector<double> percent = differences(outcome.out);
  EXPECT_EQ(percent.size(), 3U) << outcome.out;
  for (const double difference : percent) {
    EXPECT_NEAR(difference, 0, 0.1) << outcome.out;
  }
}

TEST_F(AdviseProgram, PlansAreThoseOfExplain) { expect_plan_of_chapter_8(kSmall, {1, 2, 2}, "1f1b"); }

// Over a link of high latency a ring per bucket takes far longer than one of all gradients.
const Flags kHighLatency{"--model", "vit",        "--depth",      "4",  "--width",        "512", "--heads", "8",
                         "--link",  "1ms,10GB/s", "--batch-size", "16", "--device-model", "h100"};

TEST_F(AdviseProgram, PlansTheBucketsOfAMesh) {
  expect_plan_of_chapter_8(kHighLatency, {2, 2, 1}, "1f1b");
  expect_plan_of_chapter_8(with(kHighLatency, {"--bucket-size", "2MiB"}), {2, 2, 1}, "1f1b");
}

TEST_F(AdviseProgram, PlansTheBucketsOfReplicas) {
  const Flags replicas = with(kHighLatency, {"--ranks", "4", "--dp", "4", "--recompute", "false"});
  const Outcome outcome = advise(with(replicas, {"--top", "1", "--verify", "1"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("MiB buckets\n"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find(" --bucket-size "), std::string::npos) << outcome.out;
  ASSERT_EQ(differences(outcome.out).size(), 1U) << outcome.out;
  EXPECT_NEAR(differences(outcome.out).front(), 0, 0.1) << outcome.out;
  const Outcome fixed = advise(with(replicas, {"--bucket-size", "25MiB"}));
  EXPECT_EQ(fixed.out.find("MiB buckets"), std::string::npos) << fixed.out;
}

// The embedding and the head are on two ranks, which send gradients and values, or on one, which adds and copies them.
TEST_F(AdviseProgram, PlansATiedHeadAsChapter8Does) {
  const Flags gpt = with({"--model", "gpt", "--context", "32", "--tie-head", "--optimizer", "adamw"},
                         {kSmall.begin() + 2, kSmall.end()});
  expect_plan_of_chapter_8(gpt, {1, 2, 1}, "1f1b", {"--data", "text:book"});
  expect_plan_of_chapter_8(gpt, {1, 2, 1}, "zbv", {"--data", "text:book"});
  expect_plan_of_chapter_8(gpt, {1, 1, 2}, "1f1b", {"--data", "text:book"});
  expect_plan_of_chapter_8(gpt, {2, 2, 2}, "1f1b", {"--data", "text:book"});
  for (const std::string on : {"--tie-head", "--tie-head=false"}) {  // the command trains what was planned
    const Outcome outcome = advise({"--model", "gpt", "--ranks", "2", on});
    EXPECT_NE(outcome.out.find(" " + on + " "), std::string::npos) << outcome.out;
  }
}

TEST_F(AdviseProgram, ComparesAFixedMeshWithOneDevice) {
  const Outcome outcome = advise(with(kSmall, {"--ranks", "2", "--dp", "2", "--microbatches", "2", "--json"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_GT(parse_json<Json>(outcome.out, "advise").at(0).at("speed_up").get<double>(), 0.1);
}

TEST_F(AdviseProgram, PlansTheLayersOfAProfile) {
  write_profile("\"forward_seconds\": 0.001");
  const Outcome outcome = advise({"--profile", "mine.json", "--batch-size", "16", "--ranks", "2", "--csv"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(
      outcome.out.substr(0, outcome.out.find('\n')),
      "schedule,split,dp,pp,tp,microbatches,chunks,recompute,bucket_bytes,step_seconds,speed_up,idle,memory_bytes,"
      "headroom_bytes,link_bytes,samples_per_second,staleness");
}

// Chapter 4's epoch with one batch more takes one step more.
TEST_F(AdviseProgram, PredictsWhatLateGradientsTake) {
  for (const std::string microbatches : {"1", "2", "4"}) {
    const Outcome outcome =
        advise(with(kSmall, {"--ranks", "2", "--pp", "2", "--schedules", "1f1b", "--late", "--recompute", "false",
                             "--microbatches", microbatches, "--top", "3", "--verify", "3"}));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_NE(outcome.out.find("pipedream-stash pp=2"), std::string::npos) << outcome.out;
    for (const double difference : differences(outcome.out)) {
      EXPECT_NEAR(difference, 0, 0.1) << outcome.out;
    }
  }
}

TEST_F(AdviseProgram, PrintsTimeOverMemory) {
  const Flags flags = with(kSmall, {"--ranks", "4", "--pareto"});
  const Outcome json = advise(with(flags, {"--json"}));
  ASSERT_EQ(json.exit_code, 0) << json.err;
  const Json plans = parse_json<Json>(json.out, "advise");
  ASSERT_GT(plans.size(), 2U);
  for (std::size_t i = 1; i < plans.size(); ++i) {
    EXPECT_GT(plans[i].at("step_seconds").get<double>(), plans[i - 1].at("step_seconds").get<double>());
    EXPECT_LT(plans[i].at("memory_bytes").get<double>(), plans[i - 1].at("memory_bytes").get<double>());
  }
  const Outcome table = advise(flags);
  EXPECT_NE(table.out.find(fmt::format("\n{:>3} ", plans.size())), std::string::npos) << table.out;
}

TEST_F(AdviseProgram, RefusesABadProfile) {
  for (const auto& [cost, complaint] : {std::pair{"\"forward_seconds\": -1", "forward_seconds"},
                                        {"\"forward_seconds\": 1e9", "forward_seconds"},
                                        {"\"forward\": 1", "forward"}}) {
    write_profile(cost);
    const Outcome outcome = advise({"--profile", "mine.json", "--batch-size", "16", "--ranks", "2"});
    EXPECT_EQ(outcome.exit_code, 3) << cost;
    EXPECT_NE(outcome.err.find(complaint), std::string::npos) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }
}

TEST_F(AdviseProgram, RefusesWhatCannotBe) {
  const std::pair<Flags, std::string> questions[] = {
      {{"--memory-limit", "100KiB"}, "no plan fits into 0.1 MiB per rank: the nearest needs"},
      {{"--memory-limit", "none"}, "--memory-limit: expected a number of bytes"},
      {{"--pp", "3"}, "no mesh of 4 ranks has the fixed sizes"},
      {{"--schedules", "fastest"}, "--schedules"},
      {{"--microbatches", "7"}, "no candidate has 7 micro-batches of equal size"},
      {{"--tie-head"}, "only gpt has an embedding to tie its head to; leave out --tie-head"}};
  for (const auto& [flags, complaint] : questions) {
    const Outcome outcome = advise(with(with(kSmall, {"--ranks", "4"}), flags));
    EXPECT_EQ(outcome.exit_code, 2) << flags.front();
    EXPECT_NE(outcome.err.find(complaint), std::string::npos) << outcome.err;
  }
}

}  // namespace
}  // namespace stagecoach::test
