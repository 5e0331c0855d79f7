/// @file
/// Chapter 1 on a GPU: on a real one where there is one, emulated in the preset of that name, and skipped elsewhere.

#include "core/cuda_backend.h"
#include "nn/safetensors.h"
#include "tests/chapters/program.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace stagecoach::test {
namespace {

class Ch01Cuda : public ProgramTest {
 protected:
  void SetUp() override {
    if (!has_cuda()) {
      GTEST_SKIP() << why_no_cuda();
    }
  }
  /// Trains on 12 images in batches of 5: few enough for the emulation, and the last batch is ragged.
  Outcome train(const std::string& out, std::vector<std::string> more) {
    std::vector<std::string> arguments{"--data", "data", "--batch-size", "5", "--optimizer", "adam", "--out", out};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return ch01(arguments);
  }
  std::string weights(const std::string& run) { return read_bytes(folder() / run / "weights.safetensors"); }
};

TEST_F(Ch01Cuda, SmokeTrains) {
  const Outcome outcome = ch01({"--smoke", "--device", "cuda"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("Epoch: 2, Loss: 2.3"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("gpu "), std::string::npos) << "the GPU is named: " << outcome.out;
}

TEST_F(Ch01Cuda, ThreeRunsGiveTheSameBytesAndThoseOfTheCpuAlmost) {
  make_data(12, 4);
  for (const char* run : {"a", "b", "c"}) {
    const Outcome outcome = train(run, {"--epochs", "1", "--device", "cuda"});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  }
  EXPECT_EQ(weights("a"), weights("b"));
  EXPECT_EQ(weights("a"), weights("c"));

  ASSERT_EQ(train("cpu", {"--epochs", "1"}).exit_code, 0);
  const auto here = load_tensors((folder() / "cpu/weights.safetensors").string()).tensors;
  const auto there = load_tensors((folder() / "a/weights.safetensors").string()).tensors;
  ASSERT_EQ(here.size(), there.size());
  for (std::size_t i = 0; i < here.size(); ++i) {
    // Adam's first steps are as long as the learning rate, whichever sign a tiny gradient has.
    EXPECT_TRUE(close(there[i].second, here[i].second, 1e-3, 1e-3)) << here[i].first;
  }
}

TEST_F(Ch01Cuda, AGraphGivesTheSameBytesAsLaunches) {
  make_data(12, 4);
  ASSERT_EQ(train("graph", {"--epochs", "3", "--device", "cuda"}).exit_code, 0);
  ASSERT_EQ(train("launches", {"--epochs", "3", "--device", "cuda:0", "--no-graph"}).exit_code, 0);
  EXPECT_EQ(weights("graph"), weights("launches"));
}

TEST_F(Ch01Cuda, AResumedRunEqualsAnUninterruptedOne) {
  make_data(12, 4);
  ASSERT_EQ(train("whole", {"--epochs", "2", "--device", "cuda"}).exit_code, 0);
  ASSERT_EQ(train("parts", {"--epochs", "1", "--device", "cuda"}).exit_code, 0);
  const Outcome rest = ch01({"--resume", "parts", "--epochs", "2"});
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  EXPECT_EQ(weights("parts"), weights("whole"));
}

TEST_F(Ch01Cuda, AGpuThatDoesNotExistIsAUsageError) {
  const Outcome outcome = ch01({"--smoke", "--device", "cuda:99"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.err.find("cuda:99 does not exist"), std::string::npos) << outcome.err;
}

TEST_F(Ch01Cuda, ProfileMeasuresTheDevice) {
  make_data(12, 4);
  const Outcome outcome =
      ch01({"--data", "data", "--batch-size", "6", "--epochs", "1", "--device", "cuda", "--profile"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("conv2d"), std::string::npos) << outcome.out;
}

}  // namespace
}  // namespace stagecoach::test
