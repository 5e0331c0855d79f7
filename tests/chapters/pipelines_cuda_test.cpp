/// @file
/// Pipelines whose ranks share one GPU: a real one where there is one, emulated in the preset of that name, and skipped
/// elsewhere.

#include <cstdlib>

#include "tests/chapters/program.h"
#include "tests/support/devices.h"

namespace stagecoach::test {
namespace {

class PipelinesCuda : public ProgramTest {
 protected:
  void SetUp() override {
    if (!has_cuda()) {
      GTEST_SKIP() << why_no_cuda();
    }
    ::setenv("CUDA_VISIBLE_DEVICES", "0", 1);  // in the programs: this process has asked for its GPUs already
    make_data(10, 4);                          // few enough for the emulation; the last batch is ragged
  }
  void train(const std::string& program, const std::string& out, std::vector<std::string> more) {
    // Two epochs: a stage launches each kind of micro-batch once, records the next, and replays the others.
    std::vector<std::string> flags{"--data", "data",     "--batch-size", "6",     "--epochs",
                                   "2",      "--device", "cuda",         "--out", out};
    flags.insert(flags.end(), more.begin(), more.end());
    const Outcome outcome = run(program, flags);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  }
  std::string weights(const std::string& run) { return read_bytes(folder() / run / "weights.safetensors"); }
};

TEST_F(PipelinesCuda, EqualOneGpuByteForByte) {
  train(kCh01, "one", {"--microbatches", "3"});
  train(kCh03, "table", {"--microbatches", "3", "--split", "3,9"});
  train(kCh03, "hand", {"--microbatches", "3", "--split", "3,9", "--schedule", "by-hand"});
  train(kCh05, "1f1b",
        {"--microbatches", "3", "--balance", "layers", "--ranks", "3", "--schedule", "1f1b", "--recompute", "--clock",
         "virtual", "--link", "nvlink4"});
  EXPECT_FALSE(weights("one").empty());
  for (const char* out : {"table", "hand", "1f1b"}) {
    EXPECT_TRUE(weights(out) == weights("one")) << out;
  }
  train(kCh01, "whole", {});
  train(kCh02, "naive", {"--split", "6,6"});
  EXPECT_TRUE(weights("naive") == weights("whole"));
}

// Versions of weights in a GPU's memory, replicas that average there, and the flush that equals one GPU.
TEST_F(PipelinesCuda, PipedreamKeepsVersionsOnAGpu) {
  train(kCh01, "one", {"--microbatches", "2"});
  train(kCh04, "flush", {"--versions", "flush", "--microbatches", "2", "--split", "6,6"});
  EXPECT_TRUE(weights("flush") == weights("one"));
  train(kCh04, "stash", {"--split", "3,9", "--optimizer", "adam"});
  train(kCh04, "again", {"--split", "3,9", "--optimizer", "adam", "--recompute", "--clock", "virtual"});
  EXPECT_TRUE(weights("again") == weights("stash"));
  train(kCh04, "replicas", {"--replicas", "2,1", "--split", "6,6"});
  EXPECT_FALSE(weights("replicas").empty());
}

// The last batch has four images: gradients are reduced by the ranks' second threads, on the GPU that they share.
TEST_F(PipelinesCuda, DataParallelEqualsOneGpuByteForByte) {
  train(kCh01, "one", {"--microbatches", "2"});
  train(kCh06, "single", {"--mode", "single"});
  train(kCh06, "parameter", {"--mode", "parameter"});
  train(kCh06, "buckets", {"--first-bucket-size", "4KiB", "--bucket-size", "16KiB", "--find-unused"});
  train(kCh06, "virtual", {"--bucket-size", "16KiB", "--clock", "virtual", "--link", "nvlink4"});
  train(kCh06, "mesh", {"--mesh", "dp=2,pp=2", "--split", "6,6"});
  EXPECT_FALSE(weights("one").empty());
  for (const char* out : {"single", "parameter", "buckets", "virtual", "mesh"}) {
    EXPECT_TRUE(weights(out) == weights("one")) << out;
  }
  train(kCh06, "central", {"--mode", "central"});  // steps on the CPU, whose last bits may be others
  train(kCh06, "half", {"--compress", "half"});
}

}  // namespace
}  // namespace stagecoach::test
