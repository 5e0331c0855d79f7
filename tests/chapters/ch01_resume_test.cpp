/// @file
/// Stopping and going on: whatever ends a run, going on gives the bytes of a run that was never stopped.

#include <algorithm>
#include <csignal>
#include <fstream>
#include <regex>
#include <thread>

#include "tests/chapters/program.h"

namespace stagecoach::test {
namespace {

using Flags = std::vector<std::string>;

class Ch01Resume : public ProgramTest, public ::testing::WithParamInterface<const char*> {
 protected:
  Flags flags(const Flags& more) {
    Flags all{"--data", "data", "--batch-size", "32", "--augment"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::string weights(const std::string& run) { return read_bytes(folder() / run / "weights.safetensors"); }
};

INSTANTIATE_TEST_SUITE_P(Optimizers, Ch01Resume, ::testing::Values("sgd", "adam"));

TEST_P(Ch01Resume, TenEpochsEqualFiveAndFive) {
  make_data(150, 50);
  ASSERT_EQ(ch01(flags({"--optimizer", GetParam(), "--epochs", "10", "--out", "ten"})).exit_code, 0);
  ASSERT_EQ(ch01(flags({"--optimizer", GetParam(), "--epochs", "5", "--out", "five"})).exit_code, 0);
  EXPECT_NE(weights("ten"), weights("five"));
  const Outcome resumed = ch01({"--resume", "five", "--epochs", "10"});  // the other settings come from the run
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(resumed.out.find("Epoch: 5,"), std::string::npos);
  EXPECT_NE(resumed.out.find("Epoch: 6,"), std::string::npos);
  EXPECT_EQ(weights("ten"), weights("five"));
  EXPECT_EQ(read_bytes(folder() / "ten/checkpoints/epoch-11-step-0/shard_0.safetensors").size(),
            read_bytes(folder() / "five/checkpoints/epoch-11-step-0/shard_0.safetensors").size());
  const std::string metrics = read_bytes(folder() / "five/metrics.jsonl");
  EXPECT_EQ(std::count(metrics.begin(), metrics.end(), '\n'), 10);
}

TEST_F(Ch01Resume, IntoAnotherFolderLeavesTheFirstAsItWas) {
  make_data(100, 50);
  ASSERT_EQ(ch01(flags({"--epochs", "1", "--out", "a"})).exit_code, 0);
  const std::string before = weights("a");
  ASSERT_EQ(ch01({"--resume", "a", "--epochs", "2", "--out", "b"}).exit_code, 0);
  EXPECT_EQ(weights("a"), before);
  EXPECT_NE(weights("b"), before);
  const std::string metrics = read_bytes(folder() / "b/metrics.jsonl");
  EXPECT_EQ(std::count(metrics.begin(), metrics.end(), '\n'), 2);
}

TEST_F(Ch01Resume, AfterAnInterruptWithinAnEpoch) {
  make_data(1000, 50);
  ASSERT_EQ(ch01(flags({"--epochs", "3", "--microbatches", "2", "--out", "whole"})).exit_code, 0);
  for (const int signal : {SIGINT, SIGTERM}) {
    const std::string out = "cut-" + std::to_string(signal);
    Running running(kCh01, flags({"--epochs", "3", "--microbatches", "2", "--out", out}), folder());
    while (running.out().find("Epoch: 1,") == std::string::npos) {
      std::this_thread::yield();
    }
    running.signal(signal);
    const Outcome cut = running.wait();
    ASSERT_EQ(cut.exit_code, 130) << cut.out << cut.err;
    EXPECT_NE(cut.out.find("continue with --resume " + out), std::string::npos) << cut.out;
    const Outcome resumed = ch01({"--resume", out});
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    EXPECT_EQ(weights("whole"), weights(out));
  }
}

TEST_F(Ch01Resume, AfterAnInterruptWhileTesting) {
  make_data(64, 4000);  // two steps, and a test that takes nearly all of the time
  ASSERT_EQ(ch01(flags({"--epochs", "3", "--out", "whole"})).exit_code, 0);
  const auto is_cut_in_epoch_2 = [&] {
    std::filesystem::remove_all(folder() / "cut");
    Running running(kCh01, flags({"--epochs", "3", "--out", "cut"}), folder());
    while (running.out().find("Epoch: 1,") == std::string::npos) {
      std::this_thread::yield();
    }
    running.signal(SIGINT);
    return running.wait().exit_code == 130 &&
           read_bytes(folder() / "cut/metrics.jsonl").find("\"epoch\":2") == std::string::npos;
  };
  bool is_cut = is_cut_in_epoch_2();
  for (int more = 5; !is_cut && more > 0; --more) {  // where other work takes the cores, a signal may come too late
    is_cut = is_cut_in_epoch_2();
  }
  ASSERT_TRUE(is_cut);
  ASSERT_EQ(ch01({"--resume", "cut"}).exit_code, 0);
  EXPECT_EQ(weights("whole"), weights("cut"));
}

TEST_F(Ch01Resume, RefusesWhatWouldTrainDifferently) {
  make_data(100, 50);
  ASSERT_EQ(ch01(flags({"--epochs", "1", "--out", "run"})).exit_code, 0);
  for (const Flags& change : {Flags{"--batch-size", "16"}, Flags{"--seed", "1"}, Flags{"--optimizer", "adam"},
                              Flags{"--lr", "0.5"}, Flags{"--head", "softmax"}, Flags{"--microbatches", "2"}}) {
    const Outcome outcome = ch01({"--resume", "run", "--epochs", "2", change[0], change[1]});
    EXPECT_EQ(outcome.exit_code, 2) << change[0];
    EXPECT_NE(outcome.err.find(change[0] + " differs from the run in run"), std::string::npos) << outcome.err;
  }
  EXPECT_EQ(ch01({"--resume", "run", "--epochs", "2", "--threads", "2"}).exit_code, 0);
}

TEST_F(Ch01Resume, SaysThatAnotherLevelRoundsDifferently) {
  make_data(64, 32);
  ASSERT_EQ(ch01(flags({"--epochs", "1", "--out", "run"})).exit_code, 0);
  EXPECT_EQ(ch01({"--resume", "run", "--epochs", "2"}).out.find("note:"), std::string::npos) << "the level is the same";
  const auto config = folder() / "run/config.json";
  const std::string elsewhere = std::regex_replace(read_bytes(config), std::regex(R"("cpu-level": "[^"]*")"),
                                                   R"("cpu-level": "another machine's")");
  std::ofstream(config) << elsewhere;
  const Outcome resumed = ch01({"--resume", "run", "--epochs", "3"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_NE(resumed.out.find("note: until here, the CPU kernels were those of another machine's"), std::string::npos)
      << resumed.out;
}

TEST_F(Ch01Resume, SaysWhenNothingIsLeft) {
  make_data(100, 50);
  ASSERT_EQ(ch01(flags({"--epochs", "1", "--out", "run"})).exit_code, 0);
  const Outcome outcome = ch01({"--resume", "run"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.err.find("the run is done after 1 epoch; give"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace stagecoach::test
