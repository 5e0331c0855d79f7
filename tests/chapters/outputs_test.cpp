/// @file
/// Where programs write: what is under the name of an output stays what it is, and an --out folder that is taken away
/// from a run is made again.

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <regex>
#include <string>
#include <thread>
#include <utility>

#include "nn/safetensors.h"
#include "parallel/training/folder_lock.h"
#include "tests/chapters/processes.h"

namespace stagecoach::test {
namespace {

namespace fs = std::filesystem;

class Outputs : public PipelineTest {
 protected:
  fs::path path(const std::string& name) const { return folder() / name; }
  /// Compares one run, with a drawing to `svg`.
  Outcome draw(const std::string& svg) {
    write("log", "Epoch: 1, Loss: 1.97, acc: 0.49, time cost: 1.83s\n");
    return run(kCompare, {"log", "--svg", svg});
  }
  static void expect_one_line(const Outcome& outcome, int exit_code, const std::string& text) {
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.out << outcome.err;
    EXPECT_NE(outcome.err.find(text), std::string::npos) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }
  /// The number in the last match of `pattern`; 0 if there is none.
  static int last_number(const std::string& text, const std::string& pattern) {
    int number = 0;
    const std::regex form(pattern);
    for (std::sregex_iterator match(text.begin(), text.end(), form), end; match != end; ++match) {
      number = std::stoi(match->str(1));
    }
    return number;
  }
  /// Renames the folder of a run when it has saved an epoch and does not save the next one: within a save, the run
  /// would rightly end with an error.
  void move_between_saves(const Running& running, const std::string& from, const std::string& to) {
    const auto is_between = [&] {
      const int epoch = last_number(running.out(), "Epoch: ([0-9]+),");
      const fs::path next = path(from) / "checkpoints" / ("epoch-" + std::to_string(epoch + 2) + "-step-0");
      return epoch > 0 && !fs::exists(next);
    };
    while (!is_between() && !running.ended()) {
      std::this_thread::yield();
    }
    fs::rename(path(from), path(to));
  }
};

TEST_F(Outputs, AreNotInTheFolderOfTheData) {
  make_data(20, 10);
  fs::create_directory_symlink("data", path("link"));
  for (const char* out : {"data", "data/run", "./data/a/b", "link/run", "data/../link/"}) {
    expect_one_line(ch01({"--data", "data", "--out", out}), 2, "expected a folder outside --data data, where a later");
  }
  EXPECT_FALSE(fs::exists(path("data/run")));
  EXPECT_EQ(ch01({"--data", "data/", "--model", "mlp", "--epochs", "1", "--out", "data2"}).exit_code, 0);
  EXPECT_EQ(ch01({"--data", "generated", "--explain", "--out", "generated"}).exit_code, 0);
}

TEST_F(Outputs, OfCompareReplaceOnlyFiles) {
  fs::create_directory(path("folder"));
  expect_one_line(draw("folder"), 3, "cannot write 'folder': expected a file, got a folder");
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  expect_one_line(draw("fifo"), 3, "cannot write 'fifo': no process is reading this FIFO");
  fs::create_symlink("/dev/full", path("full"));
  expect_one_line(draw("full"), 3, "No space left on device");
  EXPECT_TRUE(fs::is_symlink(path("full")));
  fs::create_symlink("/proc/self/fd/1", path("stdout"));  // as /dev/stdout is
  const Outcome printed = draw("stdout");
  EXPECT_EQ(printed.exit_code, 0) << printed.err;
  EXPECT_EQ(printed.out.rfind("<svg", 0), 0U) << "the drawing comes first, and the table does not overwrite it";
  EXPECT_NE(printed.out.find("</svg>"), std::string::npos);
}

TEST_F(Outputs, OfCompareLeaveADeviceNode) {
  if (::mknod(path("node").c_str(), S_IFCHR | 0600, makedev(1, 3)) != 0) {
    GTEST_SKIP() << "no device nodes can be made here: " << std::strerror(errno);
  }
  static_cast<void>(draw("node"));  // may be refused where nodes cannot be opened
  EXPECT_TRUE(fs::is_character_file(path("node")));
}

TEST_F(Outputs, OfAReaderByAFifoArrive) {
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  write("log", "Epoch: 1, Loss: 1.97, acc: 0.49, time cost: 1.83s\n");
  // The shell opens the FIFO for both, so that there is a reader before there is a writer.
  const Outcome outcome = shell("exec 3<>fifo; " + kCompare + " log --svg fifo && test -p fifo && head -c 4 <&3 > got");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(bytes("got"), "<svg");
}

TEST_F(Outputs, OfAPlanDoNotReplaceAFolder) {
  fs::create_directories(path("plan/profile.json"));
  expect_one_line(run(kCh04, {"--smoke", "--balance", "layers", "--profile", "--out", "plan", "--explain"}), 3,
                  "cannot write 'plan/profile.json': expected a file, got a folder");
}

TEST_F(Outputs, AFolderThatIsMovedAwayIsMadeAgain) {
  make_data(600, 40);
  for (const auto& [program, more] : {std::pair(kCh01, Flags{}), std::pair(kCh03, Flags{"--ranks", "2"})}) {
    const Flags flags = joined({"--data", "data", "--batch-size", "32"}, more);
    Running running(program, joined(flags, {"--epochs", "100000", "--out", "run"}), folder());
    move_between_saves(running, "run", "moved");
    running.signal(SIGINT);
    const Outcome stopped = running.wait();
    ASSERT_EQ(stopped.exit_code, 130) << stopped.out << stopped.err;
    EXPECT_NE(
        stopped.out.find("--out run: the folder was removed or replaced during this run; all files are written again"),
        std::string::npos)
        << stopped.out;
    EXPECT_NE(stopped.out.find("Saved; continue with --resume run"), std::string::npos) << stopped.out;
    const std::string epochs = std::to_string(last_number(stopped.out, "Interrupted in epoch ([0-9]+)") + 1);
    const Outcome resumed = run(program, {"--resume", "run", "--epochs", epochs});
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    ASSERT_EQ(run(program, joined(flags, {"--epochs", epochs, "--out", "whole"})).exit_code, 0);
    expect_same_training("run", "whole");
    for (const char* name : {"run", "moved", "whole"}) {
      fs::remove_all(path(name));
    }
  }
}

// What the first rank has, and what another one has: the file is valid, and another model's.
TEST_F(Outputs, AShardOfAnotherModelIsLeftOutWithOneLine) {
  make_data(unless_sanitized(150, 64), 40);
  const Flags flags{"--data", "data", "--batch-size", "32", "--ranks", "2"};
  for (const char* name : {"shard_0.safetensors", "shard_1.safetensors"}) {
    ASSERT_EQ(run(kCh03, joined(flags, {"--epochs", "2", "--out", "run"})).exit_code, 0);
    const std::string shard = (path("run/checkpoints/epoch-3-step-0") / name).string();
    TensorFile file = load_tensors(shard);
    file.tensors = {{"model.stem.weight", Tensor::zeros({3, 3})}};
    save_tensors(shard, file);
    const Outcome resumed = run(kCh03, {"--resume", "run", "--epochs", "3"});
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    EXPECT_NE(resumed.out.find("Skipped: run/checkpoints/epoch-3-step-0: does not match the model: it lacks"),
              std::string::npos)
        << resumed.out;
    EXPECT_EQ(resumed.out.find("Skipped:"), resumed.out.rfind("Skipped:"));
    EXPECT_NE(resumed.out.find("Continues in epoch 2 after 0 steps"), std::string::npos) << resumed.out;
    ASSERT_EQ(run(kCh03, joined(flags, {"--epochs", "3", "--out", "whole"})).exit_code, 0);
    expect_same_training("run", "whole");
    fs::remove_all(path("run"));
    fs::remove_all(path("whole"));
  }
}

class OutputsOfProcesses : public ProcessTest {};

// --out is a link, and one rename makes it lead to a folder that somebody else has locked.
TEST_F(OutputsOfProcesses, EndWhenAnotherRunHasTakenTheFolder) {
  make_data(320, 32);
  fs::create_directory(folder() / "ours");
  fs::create_directory(folder() / "theirs");
  fs::create_directory_symlink("ours", folder() / "run");
  FolderLock theirs;
  theirs.take(folder() / "theirs");
  Running running = start(3, kCh03, {"--data", "data", "--batch-size", "32", "--epochs", "60", "--out", "run"});
  ASSERT_TRUE(prints(running, "Epoch: 1,"));
  fs::create_directory_symlink("theirs", folder() / "link");
  fs::rename(folder() / "link", folder() / "run");
  const Outcome outcome = end(running);
  EXPECT_EQ(code(0), 3) << outcome.err;
  EXPECT_NE(outcome.err.find("ch03_gpipe: --out run: the folder was removed or replaced"), std::string::npos)
      << outcome.err;
  for (const int rank : {1, 2}) {
    EXPECT_EQ(code(rank), 4) << outcome.err;
  }
  EXPECT_NE(outcome.err.find("rank 0 has failed (--out run: the folder was removed or replaced"), std::string::npos)
      << outcome.err;
  for (const int rank : {0, 1, 2}) {
    EXPECT_FALSE(fs::exists(folder() / "theirs" / ("flight_" + std::to_string(rank) + ".jsonl")));
  }
}

TEST_F(OutputsOfProcesses, LeaveNothingInAFolderThatAnotherRunHasLocked) {
  make_data(64, 32);
  fs::create_directory(folder() / "run");
  FolderLock theirs;
  theirs.take(folder() / "run");
  const Flags flags{"--data", "data", "--batch-size", "32", "--epochs", "1", "--out", "run"};
  const Outcome by_processes = mpirun(2, kCh03, flags);
  EXPECT_EQ(code(0), 2) << by_processes.err;
  EXPECT_EQ(code(1), 4) << by_processes.err;
  const Outcome by_threads = run(kCh03, flags);
  EXPECT_EQ(by_threads.exit_code, 2) << by_threads.err;
  for (const Outcome& outcome : {by_processes, by_threads}) {
    EXPECT_NE(outcome.err.find("--out run: another run is writing there"), std::string::npos) << outcome.err;
  }
  EXPECT_TRUE(fs::is_empty(folder() / "run"));
}

}  // namespace
}  // namespace stagecoach::test
