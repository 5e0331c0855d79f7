// Chapter 7 by remote calls: the table, the same training by threads and by processes, and what happens when a process
// dies.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
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
  EXPECT_NE(threads.out.find("convnet as 2 remote stages of 6,6 layers, batches of 32"), std::string::npos)
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

// Byte for byte, also in the epochs' lines, except for the loss (see above) and for what is measured.
TEST_F(Remote, WritesTheWeightsOfOneDevice) {
  make_data(36, 12);
  const Flags both{"--data", "data", "--model", "resnet18", "--image-size", "16", "--batch-size", "12"};
  ASSERT_EQ(run(kCh01, joined(both, {"--microbatches", "3", "--epochs", "2", "--out", "one"})).exit_code, 0);
  const Flags flags = joined(both, {"--form", "remote", "--balance", "layers", "--epochs", "2", "--splits", "3"});
  const auto expect_run_of_one_device = [&](const std::string& out, const Outcome& outcome) {
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_NE(outcome.out.find("Results: " + out), std::string::npos) << outcome.out;
    EXPECT_TRUE(bytes(out + "/weights.safetensors") == bytes("one/weights.safetensors")) << out;
    EXPECT_TRUE(std::filesystem::exists(folder() / out / "config.json"));
    EXPECT_FALSE(std::filesystem::exists(folder() / out / "checkpoints"));
    const auto wanted = metrics("one");
    const auto epochs = metrics(out);
    ASSERT_EQ(epochs.size(), wanted.size());
    for (std::size_t i = 0; i < epochs.size(); ++i) {
      EXPECT_EQ(epochs[i]["acc"], wanted[i]["acc"]);
      EXPECT_EQ(epochs[i]["test_acc"], wanted[i]["test_acc"]);
      EXPECT_NEAR(epochs[i]["loss"].get<double>(), wanted[i]["loss"].get<double>(), 3e-6);
    }
  };
  expect_run_of_one_device("threads", run(kCh07, joined(flags, {"--out", "threads"})));
  expect_run_of_one_device("processes", mpirun(3, kCh07, joined(flags, {"--out", "processes"})));
  const Outcome resumed = run(kCh07, {"--resume", "threads"});
  EXPECT_EQ(resumed.exit_code, 2);
  EXPECT_NE(resumed.err.find("--resume threads: --form remote writes no checkpoints"), std::string::npos)
      << resumed.err;
}

// A micro-batch needs three messages one after another to be computed, and three for its gradient; then the optimizer
// is called and answers. With the wall clock there are no such links.
TEST_F(Remote, CountsModelledLinksByTheVirtualClock) {
  make_data(64, 32);
  const Flags virtual_clock = flags({"--epochs", "1", "--clock", "virtual", "--link", "100ms,100GB/s"});
  const auto seconds = [&](const std::string& out, const std::string& splits, bool as_processes) {
    const Flags all = joined(virtual_clock, {"--splits", splits, "--out", out});
    const Outcome outcome = as_processes ? mpirun(3, kCh07, all) : run(kCh07, all);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_NE(outcome.out.find("batches of 32, virtual clock"), std::string::npos) << outcome.out;
    const Json epoch = metrics(out).back();
    EXPECT_EQ(epoch["clock"], "virtual");
    EXPECT_GT(epoch["idle"].get<double>(), 0.5);
    return epoch["seconds"].get<double>();
  };
  constexpr double kSteps = 2;
  const double one = seconds("one", "1", false);
  EXPECT_GT(one, kSteps * 8 * 0.1);
  EXPECT_NEAR(seconds("processes", "1", true), one, 0.2);
  EXPECT_LT(seconds("four", "4", false), 2 * one) << "the messages of micro-batches travel at the same time";
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
  expect({"--out", "run"}, "--splits 1,2,4,8: --out takes the files of one training, got 4; give one number");
  expect({"--profile"}, "--profile: --form remote");
  expect({"--link", "ethernet100"}, "--link: the wall clock");
  expect({"--splits", "1,100"}, "a batch of 64 images has at most 64 micro-batches, got 100");
  expect({"--splits", "1,x"}, "numbers of micro-batches, such as 1,2,4,8");
  expect({"--ranks", "1"}, "a master and at least one worker");
  expect({"--ranks", "20"}, "12 layers cannot be split into 19 stages");
}

}  // namespace
}  // namespace stagecoach::test
