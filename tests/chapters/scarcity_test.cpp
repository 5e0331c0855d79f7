// Too few threads, too little memory, files that are too large: one line that names it, and the right exit code.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "tests/chapters/program.h"
#include "tests/support/sanitized.h"

namespace stagecoach::test {
namespace {

namespace fs = std::filesystem;

class Scarcity : public ProgramTest {
 protected:
  /// Runs a program with a limit on the threads of its user, which binds all users but root: so as another.
  Outcome with_threads(int count, const std::string& program) {
    const std::string user = std::to_string(100'000 + ::getpid());  // has no other processes
    return shell("exec setpriv --reuid=" + user + " --clear-groups prlimit --nproc=" + std::to_string(count) + " " +
                 program);
  }
  /// Whether that can be tried here.
  bool can_limit_threads() {
    fs::permissions(folder(), fs::perms::owner_all | fs::perms::group_exec | fs::perms::others_exec);
    return !kSanitized && ::geteuid() == 0 && with_threads(100, kCh01 + " --help").exit_code == 0;
  }
  static void expect_line(const Outcome& outcome, int exit_code, const std::vector<std::string>& parts) {
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.out << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    for (const std::string& part : parts) {
      EXPECT_NE(outcome.err.find(part), std::string::npos) << "'" << part << "' is not in: " << outcome.err;
    }
  }
  /// Makes a file large without a byte on the disk.
  bool stretch(const fs::path& file) {
    std::error_code error;  // some file systems do not
    fs::resize_file(folder() / file, std::uintmax_t{3073} << 28, error);
    return !error;
  }
};

// No rank waits for one that has no thread: with this --timeout that would take longer than the test may.
constexpr const char* kPatient = " --data data --batch-size 32 --epochs 1 --timeout 3000 ";

TEST_F(Scarcity, ARankThatGetsNoThreadEndsTheRunAtOnce) {
  if (!can_limit_threads()) {
    GTEST_SKIP() << "needs root, setpriv, prlimit, programs that all users may run, and no sanitizer";
  }
  make_data(320, 32);
  for (int threads = 1; threads <= 4; ++threads) {  // one is the program's own
    expect_line(
        with_threads(threads, kCh03 + kPatient + "--split 3,3,3,3 --ranks 4"), 4,
        {"cannot start thread " + std::to_string(threads) + " of 4: the limit on processes or memory", "ulimit -u"});
  }
  EXPECT_EQ(with_threads(5, kCh03 + kPatient + "--split 3,3,3,3 --ranks 4").exit_code, 0);
}

TEST_F(Scarcity, OtherThreadsAreNamedToo) {
  if (!can_limit_threads()) {
    GTEST_SKIP() << "needs root, setpriv, prlimit, programs that all users may run, and no sanitizer";
  }
  make_data(320, 32);
  expect_line(with_threads(2, kCh01 + " --data data --epochs 1 --threads 3"), 4,
              {"cannot start thread 3 of 3: the limit"});
  for (int threads = 4; threads <= 6; ++threads) {  // three ranks, and not all of their communication
    expect_line(with_threads(threads, kCh06 + kPatient + "--ranks 3"), 4,
                {"cannot start the communication thread: the limit on processes or memory is reached"});
  }
}

TEST_F(Scarcity, MemoryThatRunsOutAnywhereIsOneLine) {
  if (kSanitized) {
    GTEST_SKIP() << "sanitizers reserve more address space than the limits leave";
  }
  make_data(320, 32);
  int failures = 0;
  const auto with_memory = [&](int mebibytes, const std::string& command) {
    return shell("ulimit -v " + std::to_string(mebibytes * 1024) + "; exec " + command);
  };
  for (int mebibytes = 16; mebibytes < 76; mebibytes += 4) {
    for (const auto& [program, flags] : {std::pair{kCh03, "--split 3,3,6 --ranks 3"}, {kCh06, "--ranks 2 --out run"}}) {
      const bool is_loaded = with_memory(mebibytes, program + " --help").exit_code == 0;
      const Outcome outcome = with_memory(mebibytes, program + kPatient + flags);
      if (!is_loaded || outcome.exit_code == 0) {
        continue;  // too little for the libraries, which end as they like; or enough
      }
      ++failures;
      expect_line(outcome, outcome.exit_code == 3 ? 3 : 4, {});
    }
  }
  EXPECT_GT(failures, 3) << "hardly any limit was too low";
}

TEST_F(Scarcity, AFileThatDoesNotFitIntoMemoryIsNamed) {
  make_data(320, 32);
  ASSERT_EQ(ch01({"--data", "data", "--epochs", "1", "--out", "run"}).exit_code, 0);
  const std::string shard = "run/checkpoints/epoch-2-step-0/shard_0.safetensors";
  if (!stretch(shard) || !stretch("data/data_batch_1.bin")) {
    GTEST_SKIP() << "this file system has no sparse files of 800 GB";
  }
  expect_line(ch01({"--data", "data"}), 3, {"data_batch_1.bin does not fit into memory: it needs 824902156288 bytes"});
  fs::remove(folder() / "data/data_batch_1.bin");
  make_data(320, 32);
  expect_line(ch01({"--resume", "run", "--epochs", "2"}), 3,
              {shard, "the header does not match the file", "824902153344"});
  fs::create_directories(folder() / "images/train/a");
  fs::create_directories(folder() / "images/test/a");
  for (const char* image : {"images/train/a/1.png", "images/test/a/1.png"}) {
    write_bytes(folder() / image, "");
    stretch(image);
  }
  expect_line(ch01({"--data", "images"}), 3, {"images/train/a/1.png is too large", "got 824902156288"});
}

TEST_F(Scarcity, ATextThatDoesNotFitIntoMemoryIsNamed) {
  make_data(320, 32);
  ASSERT_EQ(ch01({"--data", "data", "--epochs", "1", "--out", "run"}).exit_code, 0);
  write_bytes(folder() / "large.csv", "0F0");
  if (!stretch("large.csv") || !stretch("run/config.json")) {
    GTEST_SKIP() << "this file system has no sparse files of 800 GB";
  }
  const std::string what = "does not fit into memory: it needs 824902156288 bytes";
  expect_line(run(kCh03, {"--data", "data", "--schedule", "large.csv"}), 3, {"large.csv " + what});
  expect_line(run(kCh04, {"--data", "data", "--profile-file", "large.csv"}), 3, {"large.csv " + what});
  expect_line(run(kCompare, {"large.csv"}), 3, {"large.csv " + what});
  expect_line(ch01({"--resume", "run", "--epochs", "2"}), 3, {"run/config.json " + what});
}

TEST_F(Scarcity, ALimitOnTheSizeOfFilesIsAFullDisk) {
  make_data(320, 32);
  const std::string limited = "ulimit -f 100; exec ";
  expect_line(shell(limited + kMakeData + " more"), 3, {"more/data_batch_1.bin", "File too large"});
  ASSERT_EQ(ch01({"--data", "data", "--epochs", "1", "--out", "run"}).exit_code, 0);
  const std::string weights = read_bytes(folder() / "run/weights.safetensors");
  expect_line(shell(limited + kCh01 + " --resume run --epochs 2"), 3, {"shard_0.safetensors", "File too large"});
  EXPECT_EQ(read_bytes(folder() / "run/weights.safetensors"), weights);
  EXPECT_EQ(ch01({"--resume", "run", "--epochs", "2"}).exit_code, 0) << "and the run goes on";
}

}  // namespace
}  // namespace stagecoach::test
