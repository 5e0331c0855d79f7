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

TEST_F(ModelledPlan, AStepTakesWhatExplainSays) {
  make_data(64, 10);  // two batches
  const Flags flags{"--microbatches", "3", "--device-model", "laptop"};
  const Outcome trained = train(kCh01, "one", joined({"--clock", "modelled"}, flags));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const Outcome plan = train(kCh01, "plan", joined({"--clock", "modelled", "--explain"}, flags));
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  const double step = nlohmann::json::parse(file("plan", "prediction.json"))["step_seconds"];
  const std::string metrics = file("one", "metrics.jsonl");
  const double epoch = nlohmann::json::parse(metrics.substr(0, metrics.find('\n')))["seconds"];
  EXPECT_NEAR(epoch, 2 * step, 1e-9 * epoch);
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
