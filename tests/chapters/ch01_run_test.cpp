/// @file
/// Chapter 1 as its users run it: what it prints and writes.

#include <nlohmann/json.hpp>

#include <regex>
#include <sstream>

#include "nn/safetensors.h"
#include "tests/chapters/program.h"

namespace stagecoach::test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class Ch01Run : public ProgramTest {
 protected:
  std::vector<Json> metrics(const std::string& run) {
    std::vector<Json> lines;
    std::istringstream text(read_bytes(folder() / run / "metrics.jsonl"));
    for (std::string line; std::getline(text, line);) {
      lines.push_back(Json::parse(line));
    }
    return lines;
  }
};

TEST_F(Ch01Run, SmokePrintsSettingsAndEpochLines) {
  const Outcome outcome = ch01({"--smoke"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_NE(outcome.out.find("batch-size    64"), std::string::npos) << outcome.out;
  const std::regex line(
      R"((^|\n)Epoch: 1, Loss: \d+\.\d\d, acc: \d\.\d\d, time cost: \d+\.\d\ds, test acc: \d\.\d\d, \d+ img/s, idle \d+\.\d% \(ideal 0\.0%\)\n)");
  EXPECT_TRUE(std::regex_search(outcome.out, line)) << outcome.out;
  EXPECT_FALSE(fs::exists(folder() / "runs")) << "without --out nothing is written";
}

TEST_F(Ch01Run, HelpGroupsTheFlagsAndGivesAnExample) {
  const Outcome outcome = ch01({"--help"});
  EXPECT_EQ(outcome.exit_code, 0);
  for (const char* text : {"Data:", "Model:", "Training:", "Machine:", "Run:", "Example:"}) {
    EXPECT_NE(outcome.out.find(text), std::string::npos) << text << " is not in " << outcome.out;
  }
  // The default, which some versions of CLI11 print as =64 and others as [64].
  EXPECT_TRUE(std::regex_search(outcome.out, std::regex(R"(--batch-size \S.*[=\[]64\b)"))) << outcome.out;
}

TEST_F(Ch01Run, WritesTheFilesOfTheContract) {
  make_data(300, 100);
  const Outcome outcome = ch01({"--data", "data", "--epochs", "2", "--optimizer", "adam", "--out", "run"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("Results: run\n"), std::string::npos);

  const Json config = Json::parse(read_bytes(folder() / "run/config.json"));
  EXPECT_EQ(config["program"], "ch01_single_device");
  EXPECT_EQ(config["optimizer"], "adam");
  EXPECT_EQ(config["lr"], 0.001);

  const auto lines = metrics("run");
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[1]["epoch"], 2);
  EXPECT_GT(lines[0]["images_per_second"], 0);
  ASSERT_EQ(lines[0]["peak_bytes"].size(), 1U);
  // 62,006 weights, their gradients and two moments are 1 MB; the activations of 64 images come on top.
  EXPECT_GT(lines[0]["peak_bytes"][0], 2'000'000);
  EXPECT_LT(lines[0]["peak_bytes"][0], 20'000'000);

  const Json trace = Json::parse(read_bytes(folder() / "run/trace.json"));
  std::set<std::string> names;
  for (const Json& event : trace["traceEvents"]) {
    EXPECT_EQ(event["pid"], 1);
    EXPECT_EQ(event["tid"], 1) << "one rank";
    names.insert(event["name"].get<std::string>() + " " + event.value("cat", ""));
  }
  for (const char* name : {"conv2d forward", "conv2d backward", "linear backward", "optimizer update", "load data",
                           "step 1 step", "memory of rank 0 "}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }

  const TensorFile weights = load_tensors((folder() / "run/weights.safetensors").string());
  ASSERT_EQ(weights.tensors.size(), 10U);
  EXPECT_EQ(weights.tensors[0].first, "conv1.weight");
  EXPECT_EQ(weights.tensors[0].second.shape(), (Shape{6, 3, 5, 5}));
}

TEST_F(Ch01Run, ThreadsDoNotChangeTheWeights) {
  make_data(200, 50);
  for (const char* threads : {"1", "2", "3"}) {
    const Outcome outcome =
        ch01({"--data", "data", "--epochs", "2", "--threads", threads, "--out", std::string("run") + threads});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  }
  const std::string one = read_bytes(folder() / "run1/weights.safetensors");
  EXPECT_GT(one.size(), 248024U);
  EXPECT_EQ(one, read_bytes(folder() / "run2/weights.safetensors"));
  EXPECT_EQ(one, read_bytes(folder() / "run3/weights.safetensors"));
}

TEST_F(Ch01Run, SeedsDiffer) {
  make_data(100, 50);
  ASSERT_EQ(ch01({"--data", "data", "--epochs", "1", "--seed", "1", "--out", "a"}).exit_code, 0);
  ASSERT_EQ(ch01({"--data", "data", "--epochs", "1", "--seed", "2", "--out", "b"}).exit_code, 0);
  EXPECT_NE(read_bytes(folder() / "a/weights.safetensors"), read_bytes(folder() / "b/weights.safetensors"));
}

TEST_F(Ch01Run, MicroBatchesGiveTheSameTraining) {
  make_data(138, 50);  // batches of 64, the last one of 10: ragged, and its micro-batches too
  ASSERT_EQ(ch01({"--data", "data", "--epochs", "2", "--out", "whole"}).exit_code, 0);
  for (const char* count : {"2", "5", "64"}) {  // the last batch has fewer than 64
    const std::string out = std::string("m") + count;
    ASSERT_EQ(ch01({"--data", "data", "--epochs", "2", "--microbatches", count, "--out", out}).exit_code, 0);
    const TensorFile a = load_tensors((folder() / "whole/weights.safetensors").string());
    const TensorFile b = load_tensors((folder() / out / "weights.safetensors").string());
    for (std::size_t i = 0; i < a.tensors.size(); ++i) {
      const auto left = a.tensors[i].second.to_vector<float>();
      const auto right = b.tensors[i].second.to_vector<float>();
      for (std::size_t j = 0; j < left.size(); ++j) {
        ASSERT_NEAR(left[j], right[j], 2e-5) << a.tensors[i].first << "[" << j << "], micro-batches " << count;
      }
    }
    EXPECT_NEAR(metrics("whole")[1]["loss"].get<double>(), metrics(out)[1]["loss"].get<double>(), 1e-4);
  }
}

TEST_F(Ch01Run, AnEarlierRunIsMovedAside) {
  make_data(100, 50);
  ASSERT_EQ(ch01({"--data", "data", "--epochs", "1", "--seed", "1", "--out", "run"}).exit_code, 0);
  const std::string first = read_bytes(folder() / "run/weights.safetensors");
  const Outcome again = ch01({"--data", "data", "--epochs", "1", "--seed", "2", "--out", "run"});
  ASSERT_EQ(again.exit_code, 0);
  EXPECT_NE(again.out.find("run/earlier-1"), std::string::npos) << again.out;
  EXPECT_EQ(read_bytes(folder() / "run/earlier-1/weights.safetensors"), first);
  EXPECT_NE(read_bytes(folder() / "run/weights.safetensors"), first);
}

TEST_F(Ch01Run, ExplainShowsTheStepAndTrainsNothing) {
  const Outcome outcome = ch01({"--explain", "--smoke", "--microbatches", "3", "--out", "plan"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("0F0,0B0,0F1,0B1,0F2,0B2"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("max_pool2d"), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.out.find("Epoch: "), std::string::npos);
  EXPECT_EQ(read_bytes(folder() / "plan/schedule.csv"), "0F0,0B0,0F1,0B1,0F2,0B2\n");
  const Json prediction = Json::parse(read_bytes(folder() / "plan/prediction.json"));
  EXPECT_EQ(prediction["step_seconds"], 9);
  EXPECT_EQ(prediction["idle"], 0);
  EXPECT_EQ(prediction["idle_in_span"], 0);
  EXPECT_EQ(prediction["peak_activations"], Json::array({1}));
  EXPECT_FALSE(fs::exists(folder() / "plan/weights.safetensors"));
}

TEST_F(Ch01Run, ProfileShowsWhereTheTimeWent) {
  const Outcome outcome = ch01({"--smoke", "--profile"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(std::regex_search(outcome.out, std::regex(R"(conv2d +backward +\d+ +\d+\.\d +\d+\.\d%)"))) << outcome.out;
}

}  // namespace
}  // namespace stagecoach::test
