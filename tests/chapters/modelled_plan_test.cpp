// Plans by the modelled clock: what a training takes, and models that fit into no machine.

#include <nlohmann/json.hpp>

#include <regex>
#include <sstream>

#include "core/base/text_file.h"
#include "parallel/schedule/schedule_kinds.h"
#include "tests/chapters/pipelines.h"
#include "tests/support/sanitized.h"

namespace stagecoach::test {
namespace {

class ModelledPlan : public PipelineTest {
 protected:
  std::string file(const std::string& run, const std::string& name) {
    return read_text(folder() / run / name, "the run should have written it");
  }
};

// A third batch takes a step more; what an epoch takes besides, such as the wait for its first batch, is the same.
TEST_F(ModelledPlan, AStepTakesWhatExplainSays) {
  const auto first_line = [&](const std::string& run, const std::string& name) {
    const std::string text = file(run, name);
    return Json::parse(text.substr(0, text.find('\n')));
  };
  const std::vector<std::pair<std::string, Flags>> programs{
      {kCh01, {"--microbatches", "3"}},
      {kCh03, {"--ranks", "3", "--microbatches", "4", "--link", "20us,1GB/s"}},
      {kCh04, {"--ranks", "2", "--versions", "stash", "--microbatches", "4", "--link", "nvlink4"}},
      {kCh05, {"--ranks", "2", "--chunks", "2", "--microbatches", "4", "--link", "nvlink4"}},
      {kCh06, {"--ranks", "2", "--mode", "single"}},
      {kCh06, {"--ranks", "2", "--mode", "parameter"}},
      {kCh06, {"--ranks", "2", "--mode", "buckets", "--bucket-size", "64KiB", "--first-bucket-size", "64KiB"}},
      {kCh06, {"--ranks", "2", "--mode", "central"}},
      {kCh06, {"--model", "vit", "--mesh", "dp=2,pp=2", "--microbatches", "2", "--link", "nvlink4"}},
      {kCh06, {"--mesh", "dp=2,pp=2", "--schedule", "zbv", "--microbatches", "2", "--link", "20us,1GB/s"}},
      {kCh08, {"--mesh", "dp=2,tp=2", "--clip-norm", "0.1", "--link", "nvlink4"}},
      {kCh08, {"--mesh", "tp=2", "--overlap", "--link", "20us,1GB/s"}},
      {kCh08, {"--mesh", "dp=2,pp=2,tp=2", "--rank-order", "pp-tp-dp", "--microbatches", "2", "--link", "nvlink4"}},
      {kCh08, {"--mesh", "pp=2,tp=2", "--schedule", "zb-h1", "--rank-order", "pp-tp-dp", "--sequence-parallel"}},
      {kCh08, {"--mesh", "pp=2,tp=2", "--schedule", "zbv", "--rank-order", "pp-tp-dp", "--overlap", "--recompute"}},
      {kCh09, {"--ranks", "2", "--shard", "optimizer", "--optimizer", "adam", "--clip-norm", "0.5", "--link", "pcie4"}},
      {kCh09, {"--ranks", "4", "--shard", "gradients", "--microbatches", "2", "--link", "nvlink4"}},
      {kCh09, {"--mesh", "dp=2,shard=2", "--clip-norm", "0.1", "--link", "20us,1GB/s"}},
      {kCh09, {"--ranks", "3", "--model", "vit", "--prefetch", "2", "--link", "pcie4"}},
      {kCh09, {"--ranks", "2", "--no-reshard-after-forward", "--microbatches", "2", "--accumulation", "sharded"}}};
  for (const std::string images : {"64", "96"}) {
    ASSERT_EQ(run(kMakeData, {"data" + images, "--train", images, "--test", "10"}).exit_code, 0);
  }
  for (const auto& [program, flags] : unless_sanitized(programs, {programs[3], programs[8], programs[10]})) {
    const Flags all = joined({"--clock", "modelled", "--batch-size", "32"}, flags);
    for (const std::string images : {"64", "96"}) {
      const Outcome trained =
          run(program, joined(all, {"--data", "data" + images, "--epochs", "1", "--out", "run" + images}));
      ASSERT_EQ(trained.exit_code, 0) << trained.err;
    }
    const Outcome plan = run(program, joined(all, {"--data", "data96", "--explain", "--out", "plan"}));
    ASSERT_EQ(plan.exit_code, 0) << plan.err;
    const Json run96 = first_line("run96", "metrics.jsonl");
    const Json prediction = planned_step("plan");
    const double step = run96["seconds"].get<double>() - first_line("run64", "metrics.jsonl")["seconds"].get<double>();
    if (program != kCh04) {  // where a step is the mean of an epoch
      const double planned = prediction.value("further_step_seconds", prediction["step_seconds"].get<double>());
      EXPECT_NEAR(planned, step, 1e-6 * step) << program << " " << flags.back();
    }
    // Where others scatter the sum of their tokens, a rank that runs alone keeps those of all.
    const double tolerance = flags.back() == "--sequence-parallel" ? 0.06 : 0.02;
    for (std::size_t rank = 0; rank < prediction["memory_bytes"].size(); ++rank) {
      const double peak = run96["peak_bytes"][rank];
      EXPECT_NEAR(prediction["memory_bytes"][rank].get<double>(), peak, tolerance * peak)
          << program << " " << flags.back();
    }
    std::filesystem::remove_all(folder() / "run64");
    std::filesystem::remove_all(folder() / "run96");
  }
}

// It is a sum of parts that seldom peak together. Where a backward is split, output gradients wait for its second part.
TEST_F(ModelledPlan, ResidentMemoryIsThatOfTheTensorsOrMore) {
  for (const std::string& schedule : schedule_names()) {
    SCOPED_TRACE(schedule);
    const Outcome outcome = run(kCh05, {"--explain", "--clock", "modelled", "--ranks", "4", "--microbatches", "8",
                                        "--schedule", schedule, "--model", "vit", "--depth", "10", "--out", "plan"});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    std::istringstream lines(outcome.out.substr(outcome.out.find("Predicted resident memory")));
    std::string line;
    std::getline(lines, line);
    std::getline(lines, line);
    const Json plan = planned_step("plan");
    for (const double bytes : plan["memory_bytes"]) {
      int rank = 0;
      double mebibytes = 0;
      std::getline(lines, line);
      std::istringstream(line) >> rank >> mebibytes;
      EXPECT_GE(1.001 * mebibytes * 1048576, bytes) << line;
      EXPECT_LE(mebibytes * 1048576, 1.25 * bytes) << line;
    }
    std::filesystem::remove_all(folder() / "plan");
  }
}

// The rank that works longest works so long and so many times the mean; the mean follows from the idle share.
TEST_F(ModelledPlan, BottleneckWorksAllThatItsRankDoes) {
  const Outcome outcome = run(kCh03, {"--explain", "--clock", "modelled", "--microbatches", "4", "--out", "plan"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  std::smatch found;
  ASSERT_TRUE(std::regex_search(outcome.out, found, std::regex(R"(it works ([\d.]+) ms, ([\d.]+) times the mean)")))
      << outcome.out;
  const Json plan = planned_step("plan");
  const double mean = 1e3 * plan["step_seconds"].get<double>() * (1 - plan["idle"].get<double>());
  EXPECT_NEAR(std::stod(found[1]) / std::stod(found[2]), mean, 0.01 * mean);
}

TEST_F(ModelledPlan, PlansAModelThatFitsIntoNoMachineOn512Devices) {
  const Outcome plan = run(kCh08, {"--explain",
                                   "--clock",
                                   "modelled",
                                   "--device-model",
                                   "h200",
                                   "--link",
                                   "inner=nvlink4,outer=ethernet100,per-node=8",
                                   "--model",
                                   "vit",
                                   "--depth",
                                   "80",
                                   "--width",
                                   "8192",
                                   "--heads",
                                   "64",
                                   "--mesh",
                                   "dp=8,pp=8,tp=8",
                                   "--microbatches",
                                   "64",
                                   "--batch-size",
                                   "4096"});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_NE(plan.out.find("512 ranks"), std::string::npos);
  const Outcome refused = run(kCh08, {"--mesh", "dp=8,pp=8,tp=8"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("at most 128 ranks can train here; give fewer, or --explain for a plan"),
            std::string::npos);
}

TEST_F(ModelledPlan, PlansAreComparedByTheFiveNumbersOfAStep) {
  const Flags step{"--explain", "--clock", "modelled", "--device-model", "h100", "--model",      "vit", "--depth",
                   "4",         "--width", "64",       "--heads",        "2",    "--batch-size", "32"};
  const auto plan = [&](const std::string& program, const Flags& more, const std::string& out) {
    const Outcome outcome = run(program, joined(step, joined(more, {"--out", out})));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return planned_step(out);
  };
  const Flags four{"--ranks", "4", "--link", "nvlink4"};
  const Json one = plan(kCh01, {}, "one");
  const Json gpipe = plan(kCh03, joined(four, {"--microbatches", "8"}), "gpipe");
  const Json late = plan(kCh04, four, "late");
  const Json drained =
      plan(kCh04, joined(four, {"--versions", "flush", "--microbatches", "8", "--split", "2,2,1,3"}), "drained");
  const Json same =
      plan(kCh05, joined(four, {"--schedule", "1f1b", "--microbatches", "8", "--split", "2,2,1,3"}), "same");
  const Json data = plan(kCh06, joined(four, {"--microbatches", "1"}), "data");
  const Json controller = plan(kCh07, joined(four, {"--microbatches", "8"}), "controller");
  const Json tensor = plan(kCh08, {"--link", "nvlink4", "--mesh", "tp=2", "--microbatches", "1"}, "tensor");
  EXPECT_EQ(one["clock"], "modelled");
  EXPECT_EQ(one["link_bytes"], 0);
  EXPECT_EQ(gpipe["link_bytes"], 32 * 64 * 64 * 4);  // every image is 64 tokens of 64 features
  EXPECT_EQ(controller["link_bytes"], gpipe["link_bytes"]);
  EXPECT_GT(late["staleness"], 0);
  EXPECT_NEAR(drained["step_seconds"], same["step_seconds"], 1e-6 * same["step_seconds"].get<double>());
  EXPECT_EQ(gpipe["staleness"], 0);
  EXPECT_EQ(data["memory_bytes"].size(), 4U);
  EXPECT_LT(data["memory_bytes"][0], one["memory_bytes"][0]);
  EXPECT_GT(data["link_bytes"], 4 * 12 * 64 * 64 * 4);  // more than the weights of 4 blocks, 1.5 times
  EXPECT_LT(controller["memory_bytes"][1], one["memory_bytes"][0]);
  EXPECT_GT(tensor["link_bytes"], 4 * 4 * 32 * 64 * 64 * 4 / 2);  // 4 sums of each of 4 blocks, half of each twice

  const Outcome table = run(kCompare, {"one", "gpipe", "late", "data", "controller", "tensor"});
  ASSERT_EQ(table.exit_code, 0) << table.err;
  EXPECT_NE(table.out.find("plan        ranks  step time  speed-up   idle  peak MiB  MiB per link  staleness\none"),
            std::string::npos)
      << table.out;
  EXPECT_NE(table.out.find("\ngpipe           4"), std::string::npos) << table.out;
}

// Chapter 4 plans an epoch. Its last batch has fewer images and does not count; of the others, a step begins a little
// before the last rank has updated.
TEST_F(ModelledPlan, AStepWithAFlushIsTheSameInChapters4And5) {
  const Flags step{"--explain", "--clock", "modelled", "--ranks",        "4", "--link",
                   "nvlink4",   "--model", "vit",      "--microbatches", "8", "--out"};
  ASSERT_EQ(run(kCh04, joined(step, {"epoch", "--versions", "flush"})).exit_code, 0);
  ASSERT_EQ(run(kCh05, joined(step, {"step", "--schedule", "1f1b"})).exit_code, 0);
  const Json epoch = planned_step("epoch");
  const Json one = planned_step("step");
  EXPECT_NEAR(epoch["step_seconds"].get<double>(), one["step_seconds"].get<double>(),
              0.01 * one["step_seconds"].get<double>());
  EXPECT_EQ(epoch["link_bytes"], one["link_bytes"]);
  EXPECT_EQ(epoch["memory_bytes"], one["memory_bytes"]);
}

TEST_F(ModelledPlan, WhatIsNotAPlanOfTheSameWorkIsNotComparedWithOne) {
  const Flags step{"--explain", "--clock", "modelled"};
  ASSERT_EQ(run(kCh01, joined(step, {"--out", "plan"})).exit_code, 0);
  ASSERT_EQ(run(kCh01, joined(step, {"--out", "half", "--batch-size", "32"})).exit_code, 0);
  ASSERT_EQ(run(kCh01, {"--explain", "--out", "units"}).exit_code, 0);
  ASSERT_EQ(run(kCh01, {"--smoke", "--out", "run"}).exit_code, 0);
  const auto refused = [&](const Flags& flags, int code, const std::string& text) {
    const Outcome outcome = run(kCompare, flags);
    EXPECT_EQ(outcome.exit_code, code) << outcome.out;
    EXPECT_NE(outcome.err.find(text), std::string::npos) << outcome.err;
  };
  refused({"plan", "half"}, 2, "batch-size: expected 64, got 32");
  refused({"plan", "units"}, 2, "clock: expected modelled, got units");
  refused({"plan", "run"}, 2, "expected either runs or plans (of --explain), got one of each");
  refused({"plan", "--svg", "a.svg"}, 2, "--svg draws runs, and plan is a plan");
  write_text(folder() / "half/prediction.json", "{\"step_seconds\":1}\n");
  refused({"plan", "half"}, 3, "'settings' is missing: an older version wrote it");
  write_text(folder() / "half/prediction.json", "{\"step_seconds\":-1,\"settings\":{}}\n");
  refused({"plan", "half"}, 3, "'step_seconds' must be finite and not negative");
}

}  // namespace
}  // namespace stagecoach::test
