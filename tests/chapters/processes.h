#pragma once
/// @file
/// Runs chapters as processes, by mpirun or as torchrun does.

#include <string>
#include <vector>

#include "tests/chapters/pipelines.h"

namespace stagecoach::test {

class ProcessTest : public PipelineTest {
 protected:
  enum class Launcher { mpirun, torchrun };
  explicit ProcessTest(Launcher launcher = Launcher::mpirun) : launcher_(launcher) {}

  bool is_by_torchrun() const { return launcher_ == Launcher::torchrun; }
  /// Skips the test in a build without MPI, or without Gloo.
  void SetUp() override;
  void TearDown() override { expect_nothing_left(); }

  /// Checks that no process of the last start is left, and no memory that processes share.
  void expect_nothing_left();

  /// Starts `ranks` processes of `program`.
  Running start(int ranks, const std::string& program, const Flags& flags);
  /// Waits for the end. Open MPI's mpirun itself sometimes stands still when all of its processes have ended (4.1
  /// with PMIx 4.2, about once in a hundred killed ranks); then it is killed.
  Outcome end(Running& running) const;
  Outcome mpirun(int ranks, const std::string& program, const Flags& flags) {
    Running running = start(ranks, program, flags);
    return end(running);
  }
  /// The number of a rank's process; waits until it has one.
  pid_t process(int rank);
  /// How a rank's process has ended; -1 when that is not known.
  int code(int rank);
  /// Waits until the programs have printed `text`, for a minute at most.
  static bool prints(const Running& running, const std::string& text);

 private:
  const Launcher launcher_;
  /// Whether a rank still runs that has noted its process.
  bool a_rank_runs() const;

  std::vector<std::string> shared_memory_before_;
  int ranks_ = 0;
};

}  // namespace stagecoach::test
