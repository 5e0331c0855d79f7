// Ranks that are killed at many moments, one run after the other.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "tests/chapters/processes.h"

namespace stagecoach::test {
namespace {

namespace fs = std::filesystem;

class ProcessesSlow : public ProcessTest {
 protected:
  static constexpr int kRanks = 3;
  Flags begin() const {
    return {"--data",         "data", "--batch-size", "32", "--epochs", "8",  "--split", "3,3,6",
            "--microbatches", "2",    "--timeout",    "10", "--out",    "run"};
  }
  /// Goes on with the run, or begins it anew when it was killed before a checkpoint was whole: without its manifest,
  /// which is written last, it is none.
  Running go_on() {
    if (!is_saved()) {
      fs::remove_all(folder() / "run");
    }
    return start(kRanks, kCh03, is_saved() ? Flags{"--resume", "run"} : begin());
  }
  bool is_saved() const {
    const fs::path checkpoints = folder() / "run/checkpoints";
    return fs::exists(checkpoints) && std::any_of(fs::directory_iterator(checkpoints), {}, [](const fs::path& place) {
             return fs::exists(place / "manifest.safetensors");
           });
  }
  /// A run that has ended has the bytes of one that nobody killed; the next begins anew.
  void expect_whole_run() {
    expect_same_training("run", "whole");
    fs::remove_all(folder() / "run");
  }
};

TEST_F(ProcessesSlow, KilledAtAnyMomentNothingIsLost) {
  make_data(2000, 200);
  Flags whole = begin();
  whole.back() = "whole";
  ASSERT_EQ(run(kCh03, joined(whole, {"--ranks", std::to_string(kRanks)})).exit_code, 0);

  const char* wanted = std::getenv("STAGECOACH_KILLS");
  const int kills = wanted == nullptr ? 50 : std::atoi(wanted);
  int hit = 0;
  for (int i = 0; i < kills; ++i) {
    Running running = go_on();
    const int dead = i % kRanks;
    const pid_t target = process(dead);
    std::this_thread::sleep_for(std::chrono::milliseconds(i * 617 % 1000));  // the moment: no two are alike
    ::kill(target, SIGKILL);
    const Outcome outcome = end(running);
    expect_nothing_left();
    // The run may have been over: in this start, or in the last one, which was killed when all was saved.
    if (outcome.exit_code == 0 || outcome.err.find("its 8 epochs are done") != std::string::npos) {
      expect_whole_run();
      continue;
    }
    ++hit;
    const bool is_over = fs::exists(folder() / "run/checkpoints/epoch-9-step-0/manifest.safetensors");
    for (int rank = 0; rank < kRanks; ++rank) {
      EXPECT_TRUE(rank == dead || code(rank) == 4 || code(rank) == -1 || code(rank) > 128 ||
                  (is_over && code(rank) == 0))
          << "kill " << i << ", rank " << rank << ": " << code(rank) << "\n"
          << outcome.err;
    }
  }
  EXPECT_GT(hit, kills / 3) << "most runs ended before they were killed";
  Running rest = go_on();
  const Outcome last = end(rest);
  ASSERT_TRUE(last.exit_code == 0 || last.err.find("its 8 epochs are done") != std::string::npos) << last.err;
  expect_whole_run();
}

}  // namespace
}  // namespace stagecoach::test
