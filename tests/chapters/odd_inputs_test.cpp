// Inputs of programs that are no proper files or texts: one line that names them, the right exit code, and no waiting.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/chapters/program.h"
#include "tests/support/files.h"

namespace stagecoach::test {
namespace {

namespace fs = std::filesystem;

class OddInputs : public ProgramTest {
 protected:
  static void expect_line(const Outcome& outcome, int exit_code, const std::vector<std::string>& parts) {
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.out << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    for (const std::string& part : parts) {
      EXPECT_NE(outcome.err.find(part), std::string::npos) << "'" << part << "' is not in: " << outcome.err;
    }
  }
  /// A run of `epochs` epochs in folder()/run.
  void make_run(int epochs) {
    make_data(64, 8);
    ASSERT_EQ(ch01({"--data", "data", "--epochs", std::to_string(epochs), "--out", "run"}).exit_code, 0);
  }
};

TEST_F(OddInputs, AFifoIsNotWaitedForAndADeviceNotReadToItsEnd) {
  ASSERT_EQ(::mkfifo((folder() / "fifo").c_str(), 0600), 0);
  make_data(64, 8);
  for (const std::string input : {"fifo", "/dev/zero"}) {
    expect_line(run(kCompare, {input}), 3, {input + ": expected a regular file"});
    expect_line(run(kCh04, {"--data", "data", "--profile-file", input}), 3, {input + ": expected a regular file"});
  }
  fs::create_directory(folder() / "run");
  fs::rename(folder() / "fifo", folder() / "run/config.json");
  expect_line(ch01({"--resume", "run"}), 3, {"config.json: expected a regular file"});
}

TEST_F(OddInputs, MetricsThatCannotBeReadAreNotReplaced) {
  make_run(1);
  fs::remove(folder() / "run/metrics.jsonl");
  ASSERT_EQ(::mkfifo((folder() / "run/metrics.jsonl").c_str(), 0600), 0);
  expect_line(ch01({"--resume", "run", "--epochs", "2"}), 3, {"metrics.jsonl: expected a regular file"});
  EXPECT_TRUE(fs::is_fifo(folder() / "run/metrics.jsonl"));
}

TEST_F(OddInputs, MetricsThatAreMissingAreCounted) {
  make_run(2);
  const fs::path metrics = folder() / "run/metrics.jsonl";
  const std::string lines = read_bytes(metrics);
  write_bytes(metrics, lines.substr(lines.find('\n') + 1));
  const Outcome outcome = ch01({"--resume", "run", "--epochs", "3"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("note: run/metrics.jsonl has the metrics of 1 of the 2 epochs before"), std::string::npos)
      << outcome.out;
}

TEST_F(OddInputs, MetricsThatAreDamagedAreNotReplaced) {
  make_run(2);
  const fs::path metrics = folder() / "run/metrics.jsonl";
  const std::string good = read_bytes(metrics);
  const std::string first = good.substr(0, good.find('\n'));
  const std::string second = good.substr(first.size());
  const std::string nul(1, '\0');
  struct Damage {
    std::string text, line, problem;
  };
  const Damage all[] = {{good + nul + " appended damage", "line 3", "is not valid JSON"},
                        {good + "junk\n", "line 3", "is not valid JSON"},
                        {good + nul, "line 3", "is not valid JSON"},
                        {first + nul + second, "line 1", "is not valid JSON"},
                        {first + " x" + second, "line 1", "is not valid JSON"},
                        {first + " {}" + second, "line 1", "is not valid JSON"},
                        {"{\"epoch\":1," + first.substr(1) + second, "line 1", "contains 'epoch' twice"}};
  for (const auto& [text, line, problem] : all) {
    write_bytes(metrics, text);
    expect_line(ch01({"--resume", "run", "--epochs", "3"}), 3,
                {"run/metrics.jsonl, " + line, problem, "; correct the line, or move the file away"});
    EXPECT_EQ(read_bytes(metrics), text) << "what was refused stays";
    EXPECT_FALSE(fs::exists(folder() / "run/checkpoints/epoch-4-step-0"));
  }
  write_bytes(metrics, first + "\n{\"event\":\"note\"}" + second);
  EXPECT_EQ(ch01({"--resume", "run", "--epochs", "3"}).exit_code, 0);
  EXPECT_TRUE(read_bytes(metrics).starts_with(first + "\n{\"event\":\"note\"}" + second)) << "it is about no epoch";
}

TEST_F(OddInputs, ACheckpointThatCannotBeLookedAtIsLeftOut) {
  make_run(2);
  const fs::path newest = folder() / "run/checkpoints/epoch-3-step-0/manifest.safetensors";
  ASSERT_TRUE(fs::exists(newest));
  fs::remove(newest);
  fs::create_symlink(newest.filename(), newest);
  const Outcome outcome = ch01({"--resume", "run", "--epochs", "3"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("Skipped: "), std::string::npos) << outcome.out;
}

TEST_F(OddInputs, ALinkToItselfIsADataError) {
  fs::create_directories(folder() / "run");
  fs::create_symlink("config.json", folder() / "run/config.json");
  expect_line(ch01({"--resume", "run"}), 3, {"config.json"});
}

TEST_F(OddInputs, NamesThatSettingsCannotHoldAreRefusedBeforeTraining) {
  make_data(64, 8);
  fs::rename(folder() / "data", folder() / "dat\xe9");
  expect_line(ch01({"--data", "dat\xe9", "--epochs", "1", "--out", "run"}), 2, {"UTF-8", "config.json"});
  EXPECT_EQ(ch01({"--data", "dat\xe9", "--epochs", "1"}).exit_code, 0);
}

TEST_F(OddInputs, EmptyNamesAreRefused) {
  for (const std::string flag : {"--profile-file", "--data", "--out"}) {
    expect_line(run(kCh04, {flag, ""}), 2, {flag + ": expected a text, got ''"});
  }
}

TEST_F(OddInputs, AClosedStandardErrorChangesNoExitCode) {
  EXPECT_EQ(shell("exec " + kCh01 + " --nosuch 2>&-").exit_code, 2);
  EXPECT_EQ(shell("exec " + kCh03 + " --resume nowhere 2>/dev/full").exit_code, 3);
  EXPECT_EQ(shell("exec " + kMakeData + " --train 0 2>/dev/full").exit_code, 2);
}

}  // namespace
}  // namespace stagecoach::test
