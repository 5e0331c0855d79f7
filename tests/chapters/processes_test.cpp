// Chapters whose ranks are processes: the same bytes, and what happens when one of them dies.

#include "tests/chapters/processes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <deque>

#include "parallel/comm/communicator.h"
#include "parallel/comm/tcp/admission.h"

namespace stagecoach::test {
namespace {

const std::string& kGpipeProgram = kCh03;

class Processes : public ProcessTest {
 protected:
  using ProcessTest::ProcessTest;
  Flags flags(const std::string& out, const std::string& epochs, const Flags& more = {}) {
    return joined({"--data", "data", "--batch-size", "32", "--epochs", epochs, "--out", out}, more);
  }
  /// Trains by `ranks` processes and by as many threads, and compares what they leave.
  void expect_threads_bytes(int ranks, const std::string& program, const Flags& more) {
    const std::string threads = std::to_string(ranks);
    const Outcome by_processes = mpirun(ranks, program, flags("processes", "2", more));
    ASSERT_EQ(by_processes.exit_code, 0) << by_processes.err;
    const Outcome by_threads = run(program, flags("threads", "2", joined(more, {"--ranks", threads})));
    ASSERT_EQ(by_threads.exit_code, 0) << by_threads.err;
    expect_same_training("processes", "threads");
    const auto first = by_processes.out.find("Epoch: 2,");
    EXPECT_NE(first, std::string::npos);
    EXPECT_EQ(by_processes.out.find("Epoch: 2,", first + 1), std::string::npos) << "rank 0 prints for all";
  }
  void expect_native_sums() {
    make_data(150, 40);
    ASSERT_EQ(mpirun(2, kCh06, flags("ordered", "2", {})).exit_code, 0);
    ASSERT_EQ(mpirun(2, kCh06, flags("native", "2", {"--reduce", "native"})).exit_code, 0);
    const double wanted = metrics("ordered").back()["loss"];
    EXPECT_NEAR(metrics("native").back()["loss"].get<double>(), wanted, 1e-5 * wanted);
  }
  /// Checks that rank `dead` was missed by all others of `ranks`, which say so and leave their records.
  void expect_others_tell(const Outcome& outcome, int ranks, int dead, const std::string& what) {
    bool is_in_a_stage = false;  // not where it died while an epoch's results were collected
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank == dead) {
        continue;
      }
      const std::string name = "rank " + std::to_string(rank);
      EXPECT_EQ(code(rank), 4) << name << "\n" << outcome.err;
      EXPECT_NE(outcome.err.find(": " + name + ": "), std::string::npos) << outcome.err;
      const std::string record = bytes("run/flight_" + std::to_string(rank) + ".jsonl");
      ASSERT_FALSE(record.empty()) << name;
      const Json last = Json::parse(record.substr(record.rfind('\n', record.size() - 2) + 1));
      for (const char* key : {"operation", "group", "begin", "end", "type", "in"}) {
        ASSERT_TRUE(last.contains(key)) << key;
      }
      is_in_a_stage = is_in_a_stage || last["in"].get<std::string>().find(" of stage ") != std::string::npos;
      EXPECT_LE(std::count(record.begin(), record.end(), '\n'), 2000);
    }
    EXPECT_NE(outcome.err.find(what), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.err.find(" of stage ") != std::string::npos, is_in_a_stage) << outcome.err;
  }
  void expect_a_death_loses_nothing() {
    make_data(320, 32);
    const Flags more{"--microbatches", "2", "--split", "3,3,6"};
    ASSERT_EQ(run(kGpipeProgram, flags("whole", "12", joined(more, {"--ranks", "3"}))).exit_code, 0);
    for (int dead = 0; dead < 3; ++dead) {
      {
        Running running = start(3, kGpipeProgram, flags("run", "12", more));
        ASSERT_TRUE(prints(running, "Epoch: 2,"));
        ::kill(process(dead), SIGKILL);
        const Outcome outcome = end(running);
        EXPECT_NE(outcome.exit_code, 0);
        const bool is_server = dead == 0 && is_by_torchrun();  // of the bootstrap
        expect_others_tell(outcome, 3, dead,
                           is_server ? "stopped because the connection to rank 0"
                                     : "the process of rank " + std::to_string(dead) + " has died");
      }
      // With as many ranks, with others, and as threads.
      const Flags resume{"--resume", "run"};
      const Outcome resumed = dead == 0   ? mpirun(3, kGpipeProgram, resume)
                              : dead == 1 ? mpirun(2, kGpipeProgram, joined(resume, {"--split", "5,7"}))
                                          : run(kGpipeProgram, resume);
      ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
      expect_same_training("run", "whole");
      std::filesystem::remove_all(folder() / "run");
    }
  }
};

/// Processes without MPI.
class GlooProcesses : public Processes {
 protected:
  GlooProcesses() : Processes(Launcher::torchrun) {}
};

TEST_F(Processes, TrainTheBytesThatThreadsTrain) {
  make_data(150, 40);
  for (const int ranks : {1, 2, 4}) {
    expect_threads_bytes(ranks, kCh02, {});
    expect_threads_bytes(ranks, kCh03, {"--microbatches", "4"});
    expect_threads_bytes(ranks, kCh04, {"--balance", "layers"});
    expect_threads_bytes(ranks, kCh05, {"--microbatches", "4", "--chunks", ranks == 4 ? "1" : "2"});
    expect_threads_bytes(ranks, kCh06, {"--first-bucket-size", "4KiB", "--bucket-size", "16KiB"});
  }
  expect_threads_bytes(2, kCh03, {"--microbatches", "4", "--schedule", "by-hand"});
  expect_threads_bytes(4, kCh05, {"--microbatches", "4", "--schedule", "zb-h1"});
  expect_threads_bytes(4, kCh05, {"--microbatches", "4", "--schedule", "zbv"});  // rank 0 has both ends
  expect_threads_bytes(4, kCh04, {"--balance", "layers", "--versions", "2bw"});
  expect_threads_bytes(4, kCh04, {"--replicas", "2,1,1", "--balance", "layers"});
}

TEST_F(Processes, ShareBatchesAsThreadsDo) {
  make_data(150, 40);
  for (const char* mode : {"single", "parameter", "central"}) {
    expect_threads_bytes(4, kCh06, {"--mode", mode});
  }
  expect_threads_bytes(4, kCh06, {"--mesh", "dp=2,pp=2", "--microbatches", "2"});
  expect_threads_bytes(4, kCh08, {"--mesh", "dp=1,pp=2,tp=2", "--microbatches", "2", "--depth", "2"});
}

TEST_F(GlooProcesses, TrainTheBytesThatThreadsTrain) {
  make_data(150, 40);
  for (const int ranks : {2, 4}) {
    expect_threads_bytes(ranks, kCh03, {"--microbatches", "4"});
    expect_threads_bytes(ranks, kCh05, {"--microbatches", "4", "--chunks", ranks == 4 ? "1" : "2"});
    expect_threads_bytes(ranks, kCh06, {"--first-bucket-size", "4KiB", "--bucket-size", "16KiB"});
  }
  expect_threads_bytes(1, kCh03, {"--microbatches", "4"});
  expect_threads_bytes(3, kCh04, {"--balance", "time", "--versions", "2bw"});
  expect_threads_bytes(4, kCh08, {"--mesh", "dp=1,pp=2,tp=2", "--microbatches", "2", "--depth", "2"});
}

TEST_F(GlooProcesses, SumNativelyWithinThePromise) { expect_native_sums(); }

TEST_F(Processes, SumNativelyWithinThePromise) {
  expect_native_sums();
  const Outcome threads = run(kCh06, {"--smoke", "--reduce", "native"});
  EXPECT_EQ(threads.exit_code, 2);
  EXPECT_NE(threads.err.find("ranks that are threads have no native all-reduce"), std::string::npos) << threads.err;
}

// A message takes a second of the clock, beside which what two busy cores do to the computing time is nothing.
TEST_F(Processes, KeepAVirtualClockToo) {
  make_data(64, 32);
  const Flags more{"--microbatches", "4", "--clock", "virtual", "--link", "1s,1GB/s", "--split", "3,9"};
  expect_threads_bytes(2, kGpipeProgram, more);
  const double by_processes = metrics("processes").back()["seconds"];
  const double by_threads = metrics("threads").back()["seconds"];
  EXPECT_GT(by_processes, 4) << "two steps, each forward over the link and back";
  EXPECT_NEAR(by_processes, by_threads, 0.2 * by_threads);
}

TEST_F(Processes, TracesOfAllRanksShareOneClock) {
  make_data(64, 32);
  ASSERT_EQ(mpirun(3, kGpipeProgram, flags("run", "1", {"--microbatches", "4"})).exit_code, 0);
  const Json trace = Json::parse(bytes("run/trace.json"));
  // A message cannot be taken before it is sent: what it makes possible ends after what made it has begun. Forwards
  // send to the next rank and backwards to the one before, so that a clock that is ahead shows, and one that is behind.
  std::map<std::pair<std::string, int>, std::vector<Json>> actions;  // by name and rank
  for (const Json& event : trace["traceEvents"]) {
    if (event["cat"] == "action" && event["pid"] == 1) {  // of the run, not of its prediction
      actions[{event["args"]["operation"], event["tid"].get<int>() - 1}].push_back(event);
    }
  }
  const auto expect_in_order = [&](const std::string& name, int from, int to) {
    const auto& makers = actions[{name, from}];
    const auto& takers = actions[{name, to}];
    ASSERT_EQ(makers.size(), 4U * 2) << name << ": micro-batches of two steps";
    ASSERT_EQ(takers.size(), makers.size()) << name;
    for (std::size_t i = 0; i < makers.size(); ++i) {
      EXPECT_LT(makers[i]["ts"].get<double>(), takers[i]["ts"].get<double>() + takers[i]["dur"].get<double>())
          << name << " " << i << " from rank " << from << " to " << to;
    }
  };
  for (const int rank : {0, 1}) {
    expect_in_order("forward", rank, rank + 1);
    expect_in_order("backward", rank + 1, rank);
  }
}

TEST_F(Processes, OneThatIsKilledStopsTheOthersAndNothingIsLost) { expect_a_death_loses_nothing(); }

TEST_F(GlooProcesses, OneThatIsKilledStopsTheOthersAndNothingIsLost) { expect_a_death_loses_nothing(); }

// Half of the strangers say nothing, the others guess a token and do not stop sending.
TEST_F(GlooProcesses, DoNotMindStrangers) {
  make_data(320, 32);
  const Flags more{"--microbatches", "2"};
  ASSERT_EQ(run(kGpipeProgram, flags("alone", "8", joined(more, {"--ranks", "2"}))).exit_code, 0);
  const int port = local_address(listen_at({"127.0.0.1", 0})).port;
  ::setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
  Running running = start(2, kGpipeProgram, flags("run", "8", more));
  ::unsetenv("MASTER_PORT");
  const TcpHello guess("a token of strangers", "run 0", 1, 2);
  const std::string much(64 << 10, 'x');
  std::deque<TcpSocket> strangers;
  int connections = 0;
  for (; connections < 5000 && !running.ended(); ++connections) {
    try {
      strangers.push_back(connect_to({"127.0.0.1", port}, std::chrono::steady_clock::now() + std::chrono::seconds(5)));
    } catch (const CommError&) {
      break;  // the run has ended
    }
    if (connections % 2 == 0 && strangers.back().send(&guess, sizeof(guess))) {
      static_cast<void>(strangers.back().send(much.data(), much.size(), {}));
    }
    if (strangers.size() > 500) {
      strangers.pop_front();
    }
  }
  const Outcome outcome = end(running);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_GT(connections, 100);
  EXPECT_LE(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 20) << outcome.err;
  expect_same_training("run", "alone");
}

TEST_F(GlooProcesses, WithoutOneOfThemEndAtTheDeadline) {
  const int port = local_address(listen_at({"127.0.0.1", 0})).port;
  const Outcome outcome = shell("RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=" + std::to_string(port) + " " +
                                kGpipeProgram + " --smoke --timeout 1");
  EXPECT_EQ(outcome.exit_code, 4);
  EXPECT_NE(outcome.err.find("rank 0: connecting to rank 1: no answer within 1 s"), std::string::npos) << outcome.err;
}

TEST_F(Processes, ATensorParallelOneThatIsKilledStopsTheOthersAndNothingIsLost) {
  make_data(320, 32);
  const Flags vit{"--model", "vit", "--depth", "2", "--width", "16", "--image-size", "16"};
  const Flags more = joined(vit, {"--mesh", "tp=2", "--microbatches", "2"});
  ASSERT_EQ(run(kCh08, flags("whole", "8", more)).exit_code, 0);
  for (const int dead : {0, 1}) {
    {
      Running running = start(2, kCh08, flags("run", "8", more));
      ASSERT_TRUE(prints(running, "Epoch: 2,"));
      ::kill(process(dead), SIGKILL);
      const Outcome outcome = end(running);
      EXPECT_NE(outcome.exit_code, 0);
      expect_others_tell(outcome, 2, dead, "the process of rank " + std::to_string(dead) + " has died");
    }
    const Outcome resumed = run(kCh08, {"--resume", "run", "--mesh", dead == 0 ? "pp=2,tp=2" : "tp=2"});
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    EXPECT_TRUE(bytes("run/weights.safetensors") == bytes("whole/weights.safetensors")) << dead;
    std::filesystem::remove_all(folder() / "run");
  }
}

TEST_F(Processes, OneThatStandsStillIsGivenUp) {
  make_data(320, 32);
  Running running =
      start(3, kGpipeProgram, flags("run", "1000", {"--microbatches", "2", "--timeout", "2", "--split", "3,3,6"}));
  ASSERT_TRUE(prints(running, "Epoch: 1,"));
  const pid_t still = process(1);
  ::kill(still, SIGSTOP);
  const Outcome outcome = end(running);
  EXPECT_EQ(outcome.exit_code, 4);
  expect_others_tell(outcome, 3, 1, "no answer within 2 s");
}

TEST_F(Processes, GoOnAfterAllStoodStillForLongerThanATimeout) {
  make_data(320, 32);
  Running running = start(2, kGpipeProgram, flags("run", "100000", {"--timeout", "5", "--split", "3,9"}));
  ASSERT_TRUE(prints(running, "Epoch: 1,"));
  for (const int number : {SIGSTOP, SIGCONT}) {
    for (const int rank : {0, 1}) {
      ::kill(process(rank), number);
    }
    std::this_thread::sleep_for(std::chrono::seconds(number == SIGSTOP ? 6 : 0));  // longer than the timeout
  }
  const std::size_t before = running.out().size();
  while (running.out().size() == before && !running.ended()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  running.signal(SIGUSR1);  // mpirun passes it on
  const Outcome stopped = end(running);
  EXPECT_EQ(code(0), 130) << stopped.err;
  EXPECT_EQ(code(1), 130) << stopped.err;
}

TEST_F(Processes, OneThatThrowsTellsTheOthersWhy) {
  make_data(320, 32);
  const Outcome outcome = mpirun(3, kGpipeProgram, flags("run", "5", {"--microbatches", "2", "--lr", "1e30"}));
  EXPECT_EQ(code(2), 2) << "the last rank has the loss: " << outcome.err;
  EXPECT_EQ(code(0), 4);
  EXPECT_NE(outcome.err.find("because rank 2 has failed (training has diverged"), std::string::npos) << outcome.err;
}

TEST_F(Processes, SaveWhenTheyAreAskedToStop) {
  make_data(320, 32);
  const Flags more{"--microbatches", "2", "--split", "3,9"};
  ASSERT_EQ(run(kGpipeProgram, flags("whole", "30", joined(more, {"--ranks", "2"}))).exit_code, 0);
  Outcome stopped;
  {
    Running running = start(2, kGpipeProgram, flags("run", "30", more));
    ASSERT_TRUE(prints(running, "Epoch: 1,"));
    running.signal(SIGUSR1);  // mpirun passes it on
    stopped = end(running);
    EXPECT_EQ(code(0), 130);
    EXPECT_EQ(code(1), 130);
  }
  expect_went_on(stopped, mpirun(2, kGpipeProgram, {"--resume", "run"}));
  EXPECT_EQ(bytes("run/weights.safetensors"), bytes("whole/weights.safetensors"));
}

// What srun leaves in the environment; one task may be a shell.
TEST_F(Processes, OfSrunNeedPmixUnlessItIsOne) {
  const std::string program = std::string(kGpipeProgram) + " --smoke";
  const Outcome one = shell("SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 " + program);
  EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_NE(one.out.find("layers on ranks 0,1"), std::string::npos) << one.out;
  const Outcome two = shell("SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 " + program);
  EXPECT_EQ(two.exit_code, 2) << two.err;
  EXPECT_NE(two.err.find("use srun --mpi=pmix"), std::string::npos) << two.err;
  // srun --mpi=pmi2, which is the default of many clusters, sets variables of MPICH's mpirun.
  const Outcome threads =
      shell("SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 PMI_RANK=0 PMI_SIZE=1 " + program + " --ranks 4");
  EXPECT_EQ(threads.exit_code, 0) << threads.err;
  EXPECT_NE(threads.out.find("transport     thread"), std::string::npos) << threads.out;
  for (const std::string rank : {"0", "1"}) {
    const std::string task = "SLURM_PROCID=" + rank + " SLURM_STEP_NUM_TASKS=2 PMI_RANK=" + rank + " PMI_SIZE=2 ";
    const Outcome pmi2 = shell(task + program);
    EXPECT_EQ(pmi2.exit_code, 2) << pmi2.err;
    EXPECT_EQ(pmi2.err, rank == "0" ? two.err : "");
  }
}

TEST_F(Processes, OfWhichThereAreTooManyAreRefusedByRank0Alone) {
  for (const std::string rank : {"0", "5"}) {
    const Outcome outcome = shell("RANK=" + rank + " WORLD_SIZE=129 " + kGpipeProgram + " --smoke");
    EXPECT_EQ(outcome.exit_code, 2) << rank;
    const std::string text =
        "ch03_gpipe: torchrun started too many processes: expected at most 128 (WORLD_SIZE), got 129; start fewer\n";
    EXPECT_EQ(outcome.err, rank == "0" ? text : "");
  }
}

TEST_F(Processes, AreAsManyAsTheLauncherStarted) {
  const auto expect = [&](const Outcome& outcome, int exit_code, const std::string& text) {
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
    const std::string all = outcome.out + outcome.err;
    const auto found = all.find(text);
    EXPECT_NE(found, std::string::npos) << text << " is not in " << all;
    EXPECT_EQ(all.find(text, found + 1), std::string::npos) << "more than once: " << all;
  };
  expect(mpirun(2, kGpipeProgram, {"--smoke", "--ranks", "3"}), 2,
         "--ranks 3: expected one process per rank, but mpirun started 2");
  expect(mpirun(2, kGpipeProgram, {"--smoke", "--transport", "thread"}), 2, "which would each train separately");
  expect(mpirun(2, kCh01, {"--smoke"}), 2, "ch01_single_device trains on one device");
  expect(mpirun(2, kGpipeProgram, {"--help"}), 0, "Example:");
  expect(mpirun(2, kGpipeProgram, {"--smoke", "--explain", "--out", "plan"}), 0, "Written to plan");
  EXPECT_FALSE(bytes("plan/schedule.csv").empty());
  expect(run(kGpipeProgram, {"--smoke", "--transport", "mpi"}), 2,
         "expected one per rank (2), got 1; start the program with mpirun -np 2");
}

}  // namespace
}  // namespace stagecoach::test
