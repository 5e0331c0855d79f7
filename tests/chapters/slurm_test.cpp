// Ranks that a SLURM starts: one of two nodes, made of this machine by scripts/slurm_here.sh.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/chapters/pipelines.h"

namespace stagecoach::test {
namespace {

class Slurm : public PipelineTest {
 protected:
  void SetUp() override {
#ifndef STAGECOACH_MPIRUN
    GTEST_SKIP() << "this build has no MPI";
#endif
    if (shell("test $(id -u) = 0 && unshare --uts --pid --fork true").exit_code != 0) {
      GTEST_SKIP() << "only root may make nodes of one machine";
    }
    if (shell("command -v slurmctld slurmd munged").exit_code != 0) {
      GTEST_SKIP() << "there is no SLURM; scripts/setup.sh --for-slurm installs it";
    }
    make_data(640, 64);
  }

  /// What the runs should equal.
  void train_whole() { ASSERT_EQ(train(kCh03, "whole", {"--ranks", "4"}, "6").exit_code, 0); }

  /// Runs a line of shell within a SLURM.
  Outcome slurm(const std::string& line) { return shell(fmt::format("{} bash -c '{}'", STAGECOACH_SLURM_HERE, line)); }
  static std::string training(const std::string& out) {
    return fmt::format("{} --data data --batch-size 32 --epochs 6 --timeout 10 --out {}", kCh03, out);
  }
};

TEST_F(Slurm, TrainsTheBytesThatThreadsTrain) {
  train_whole();
  for (const char* nodes : {"1", "2"}) {
    const std::string out = std::string("nodes-") + nodes;
    const Outcome outcome = slurm(fmt::format("srun --mpi=pmix -N {} -n 4 {}", nodes, training(out)));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    expect_same_training(out, "whole");
  }
}

TEST_F(Slurm, StopsByASignalAndGoesOn) {
  train_whole();
  const Outcome stopped = slurm(fmt::format(
      "srun --mpi=pmix -N 2 -n 4 {} > log & until grep -qs Epoch: log || ! kill -0 $!; do sleep 0.05; done; "
      "scancel --signal=USR1 1; wait $!; code=$?; cat log; exit $code",
      training("run")));
  EXPECT_EQ(stopped.exit_code, 130) << stopped.err;
  expect_went_on(stopped, slurm(fmt::format("srun --mpi=pmix -n 3 {} --resume run", kCh03)));
  expect_same_training("run", "whole");
}

// The ranks of the other node write to a process that is no more.
TEST_F(Slurm, ARankThatIsKilledStopsThoseOfTheOtherNode) {
  const Outcome outcome = slurm(fmt::format(
      "srun --mpi=pmix -N 2 -n 4 {} > log & until grep -qs Epoch: log || ! kill -0 $!; do sleep 0.05; done; "
      "pkill -KILL -n -f \"^[^ ]*ch03_gpipe .* killed-by-hand$\"; wait $!",
      training("killed-by-hand")));
  EXPECT_EQ(outcome.exit_code, 137) << outcome.err;
  int records = 0;
  for (int rank = 0; rank < 4; ++rank) {
    records += std::filesystem::exists(folder() / fmt::format("killed-by-hand/flight_{}.jsonl", rank)) ? 1 : 0;
  }
  EXPECT_EQ(records, 3) << outcome.err;
}

TEST_F(Slurm, WithoutPmixSaysWhatToDo) {
  const Outcome outcome = slurm("srun --mpi=none -n 2 " + training("run"));
  EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
  EXPECT_NE(outcome.err.find("use srun --mpi=pmix"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace stagecoach::test
