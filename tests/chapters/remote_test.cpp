// Chapter 7 by remote calls: the table, the same training by threads and by processes, and what happens when a process
// dies.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/chapters/processes.h"

namespace stagecoach::test {
namespace {

class Remote : public ProcessTest {
 protected:
  static Flags flags(const Flags& more) {
    return joined({"--form", "remote", "--data", "data", "--batch-size", "32", "--balance", "layers"}, more);
  }
  /// The last column of the table: the loss with each number of micro-batches.
  static std::vector<std::string> losses(const std::string& table) {
    std::vector<std::string> found;
    std::istringstream lines(table.substr(table.find("loss\n") + 5));
    for (std::string line; std::getline(lines, line);) {
      found.push_back(line.substr(line.find_last_of(' ') + 1));
    }
    return found;
  }
};

TEST_F(Remote, PrintsATableOfTheSameTraining) {
  make_data(128, 32);
  const Outcome threads = run(kCh07, flags({"--epochs", "1", "--splits", "1,2,4"}));
  ASSERT_EQ(threads.exit_code, 0) << threads.err;
  EXPECT_NE(threads.out.find("convnet as 2 remote stage(s) of 6,6 layers, batches of 32"), std::string::npos)
      << threads.out;
  const std::vector<std::string> wanted = losses(threads.out);
  ASSERT_EQ(wanted.size(), 3U) << threads.out;
  const Outcome processes = mpirun(3, kCh07, flags({"--epochs", "1", "--splits", "1,2,4"}));
  ASSERT_EQ(processes.exit_code, 0) << processes.err;
  EXPECT_EQ(losses(processes.out), wanted);
  const Outcome one_worker = run(kCh07, flags({"--epochs", "1", "--splits", "4", "--ranks", "2"}));
  ASSERT_EQ(one_worker.exit_code, 0) << one_worker.err;
  EXPECT_EQ(losses(one_worker.out), std::vector<std::string>{wanted[2]});
}

// With the running statistics of batch norm, which are on the workers.
TEST_F(Remote, HasTheLossAndTestAccuracyOfOneDevice) {
  make_data(36, 12);
  const Flags both{"--data", "data",        "--model", "resnet18", "--image-size", "16",       "--batch-size",
                   "12",     "--optimizer", "adam",    "--lr",     "0.003",        "--epochs", "2"};
  ASSERT_EQ(run(kCh01, joined(both, {"--microbatches", "3", "--out", "one"})).exit_code, 0);
  const Json one = metrics("one").back();
  const Outcome remote =
      run(kCh07, joined(both, {"--form", "remote", "--balance", "layers", "--splits", "3", "--summary"}));
  ASSERT_EQ(remote.exit_code, 0) << remote.err;
  std::smatch row;
  ASSERT_TRUE(std::regex_search(remote.out, row, std::regex(R"( (0\.\d{4}) ([\d.]+)\n)"))) << remote.out;
  EXPECT_NEAR(std::stod(row[1]), one["test_acc"].get<double>(), 1e-4);
  // One loss per batch here, one per micro-batch there: float32 rounds their sums differently.
  EXPECT_NEAR(std::stod(row[2]), one["loss"].get<double>(), 3e-6);
  for (const char* part : {"Summary, epoch 2\n", "\n  step time ", "(ideal 25.0%)", "\n  memory per rank ",
                           "MiB per step at most, from rank ", "training is synchronous\n"}) {
    EXPECT_NE(remote.out.find(part), std::string::npos) << part << remote.out;
  }
}

TEST_F(Remote, AProcessThatDiesEndsTheOthers) {
  make_data(320, 32);
  for (int dead = 0; dead < 3; ++dead) {  // the master, then each worker
    Running running = start(3, kCh07, flags({"--epochs", "1000", "--splits", "2", "--timeout", "5"}));
    ASSERT_TRUE(prints(running, "splits"));
    ::kill(process(dead), SIGKILL);
    const Outcome outcome = end(running);
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_TRUE(rank == dead || code(rank) == 4) << "rank " << rank << " after the end of rank " << dead;
    }
    EXPECT_NE(outcome.err.find("the process of rank " + std::to_string(dead) + " has died"), std::string::npos)
        << outcome.err;
    expect_nothing_left();
  }
}

TEST_F(Remote, AMasterThatIsSilentEndsTheWorkers) {
  make_data(320, 32);
  Running running = start(3, kCh07, flags({"--epochs", "1000", "--splits", "2", "--timeout", "2"}));
  ASSERT_TRUE(prints(running, "splits"));
  ::kill(process(0), SIGSTOP);
  const Outcome outcome = end(running);
  EXPECT_EQ(outcome.exit_code, 4);
  EXPECT_NE(outcome.err.find("no answer within 2 s"), std::string::npos) << outcome.err;
}

// The other worker and the master are alive, and no sign of theirs may stand for one of the stopped worker.
TEST_F(Remote, AWorkerThatIsSilentEndsTheOthersInTime) {
  make_data(320, 32);
  Running running = start(3, kCh07, flags({"--epochs", "1000", "--splits", "2", "--timeout", "2"}));
  ASSERT_TRUE(prints(running, "splits"));
  ::kill(process(1), SIGSTOP);
  const Outcome outcome = end(running);
  EXPECT_EQ(outcome.exit_code, 4);
  EXPECT_NE(outcome.err.find("no answer within 2 s"), std::string::npos) << outcome.err;
}

TEST_F(Remote, RefusesFlagsOfTheOtherForms) {
  const auto expect = [&](const Flags& more, const std::string& text) {
    const Outcome outcome = run(kCh07, joined({"--form", "remote", "--smoke"}, more));
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    EXPECT_NE(outcome.err.find(text), std::string::npos) << outcome.err;
  };
  expect({"--microbatches", "4"}, "--microbatches: --form remote takes its micro-batches from --splits");
  expect({"--out", "run"}, "--form remote only measures and writes no files");
  expect({"--splits", "1,100"}, "a batch of 64 images has at most 64 micro-batches, got 100");
  expect({"--splits", "1,x"}, "numbers of micro-batches, such as 1,2,4,8");
  expect({"--ranks", "1"}, "a master and at least one worker");
  expect({"--ranks", "20"}, "12 layers cannot be split into 19 stages");
}

}  // namespace
}  // namespace stagecoach::test
