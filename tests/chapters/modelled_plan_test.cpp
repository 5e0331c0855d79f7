// Plans by the modelled clock: what a training takes, and models that fit into no machine.

#include <nlohmann/json.hpp>

#include "core/base/text_file.h"
#include "tests/chapters/pipelines.h"

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
  const auto number = [&](const std::string& run, const std::string& name, const char* key) {
    const std::string text = file(run, name);
    return nlohmann::json::parse(text.substr(0, text.find('\n')))[key].get<double>();
  };
  const std::vector<std::pair<std::string, Flags>> programs{
      {kCh01, {"--microbatches", "3"}},
      {kCh03, {"--ranks", "3", "--microbatches", "4", "--link", "20us,1GB/s"}},
      {kCh05, {"--ranks", "2", "--chunks", "2", "--microbatches", "4", "--link", "nvlink4"}}};
  for (const std::string images : {"64", "96"}) {
    ASSERT_EQ(run(kMakeData, {"data" + images, "--train", images, "--test", "10"}).exit_code, 0);
  }
  for (const auto& [program, flags] : programs) {
    const Flags all = joined({"--clock", "modelled", "--batch-size", "32"}, flags);
    for (const std::string images : {"64", "96"}) {
      const Outcome trained =
          run(program, joined(all, {"--data", "data" + images, "--epochs", "1", "--out", "run" + images}));
      ASSERT_EQ(trained.exit_code, 0) << trained.err;
    }
    const Outcome plan = run(program, joined(all, {"--data", "data96", "--explain", "--out", "plan"}));
    ASSERT_EQ(plan.exit_code, 0) << plan.err;
    const double step = number("run96", "metrics.jsonl", "seconds") - number("run64", "metrics.jsonl", "seconds");
    EXPECT_NEAR(number("plan", "prediction.json", "step_seconds"), step, 1e-6 * step) << program;
    std::filesystem::remove_all(folder() / "run64");
    std::filesystem::remove_all(folder() / "run96");
  }
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

}  // namespace
}  // namespace stagecoach::test
