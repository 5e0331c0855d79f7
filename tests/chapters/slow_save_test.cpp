// Runs whose disk is slow: the file of weights is a FIFO whose reader takes its time, for longer than --timeout.

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>

#include "tests/chapters/processes.h"

namespace stagecoach::test {
namespace {

constexpr std::chrono::seconds kTimeout(3);
Flags flags(const std::string& timeout = "3") {
  return {"--data",  "data",  "--batch-size", "32",  "--epochs",  "1",
          "--split", "3,3,6", "--out",        "run", "--timeout", timeout};
}

/// The reader of a FIFO, which holds less than the weights of a model.
class SlowFile {
 public:
  explicit SlowFile(const std::filesystem::path& path) {
    std::filesystem::create_directories(path.parent_path());
    EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0);
    descriptor_ = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    EXPECT_GE(descriptor_, 0);
  }
  ~SlowFile() { close(); }
  SlowFile(const SlowFile&) = delete;
  SlowFile& operator=(const SlowFile&) = delete;

  /// Returns once rank 0 of `running` writes to the FIFO and has to wait, or false if it ends before. A FIFO may be
  /// full with less than its capacity, as parts of its pages stay free.
  bool is_full(const Running& running) const {
    const int capacity = ::fcntl(descriptor_, F_GETPIPE_SZ);
    int held = 0;
    while (::ioctl(descriptor_, FIONREAD, &held) == 0 && held < capacity / 2 && !running.ended()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return held >= capacity / 2;
  }
  /// Reads all that `running` writes until it ends.
  std::string read(const Running& running) const {
    std::string text;
    std::string part(1 << 16, '\0');
    for (bool has_ended = false;;) {
      const ssize_t bytes = ::read(descriptor_, part.data(), part.size());
      if (bytes > 0) {
        text.append(part, 0, static_cast<std::size_t>(bytes));
      } else if (has_ended) {
        return text;
      } else {
        has_ended = running.ended();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
  }
  void close() {
    if (descriptor_ >= 0) {
      ::close(descriptor_);
    }
    descriptor_ = -1;
  }

 private:
  int descriptor_ = -1;
};

class SlowSaves : public ProcessTest {
 protected:
  void SetUp() override {
    make_data(64, 32);
    ProcessTest::SetUp();
  }
  /// Checks that `running` saves what a run with a quick disk saves.
  void expect_saved(Running& running, const SlowFile& weights) {
    ASSERT_TRUE(weights.is_full(running));
    std::this_thread::sleep_for(2 * kTimeout);  // the disk is slow
    const std::string saved = weights.read(running);
    const Outcome outcome = end(running);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    ASSERT_EQ(train(kCh03, "whole", {"--ranks", "3", "--split", "3,3,6"}, "1").exit_code, 0);
    EXPECT_TRUE(saved == bytes("whole/weights.safetensors"));
  }
};

TEST_F(SlowSaves, AreWaitedForByThreads) {
  const SlowFile weights(folder() / "run/weights.safetensors");
  Running running(kCh03, joined(flags(), {"--ranks", "3"}), folder());
  expect_saved(running, weights);
}

TEST_F(SlowSaves, AreWaitedForByProcesses) {
  const SlowFile weights(folder() / "run/weights.safetensors");
  Running running = start(3, kCh03, flags());
  expect_saved(running, weights);
}

// Rank 0 writes, and the others wait for it.
TEST_F(SlowSaves, DoNotHideAProcessThatStandsStillOrDies) {
  for (const auto& [number, rank, reason] : {std::tuple(SIGSTOP, 0, "no answer within 3 s"),
                                             {SIGSTOP, 1, "no answer within 3 s"},
                                             {SIGKILL, 1, "the process of rank 1 has died"}}) {
    const SlowFile weights(folder() / "run/weights.safetensors");
    Running running = start(3, kCh03, flags());
    ASSERT_TRUE(weights.is_full(running));
    const auto hit = std::chrono::steady_clock::now();
    ::kill(process(rank), number);
    const Outcome outcome = end(running);
    EXPECT_LT(std::chrono::steady_clock::now() - hit, 10 * kTimeout);  // a busy machine, and the end of mpirun
    EXPECT_EQ(code(2), 4) << outcome.err;
    EXPECT_NE(outcome.err.find(reason), std::string::npos) << outcome.err;
    std::filesystem::remove_all(folder() / "run");
  }
}

TEST_F(SlowSaves, ThatFailEndTheOthersAtOnce) {
  SlowFile weights(folder() / "run/weights.safetensors");
  Running running = start(3, kCh03, flags("100"));
  ASSERT_TRUE(weights.is_full(running));
  weights.close();
  const Outcome outcome = end(running);
  EXPECT_EQ(code(0), 3) << outcome.err;
  for (const int rank : {1, 2}) {
    EXPECT_EQ(code(rank), 4) << outcome.err;
  }
  EXPECT_NE(outcome.err.find("because rank 0 has failed (cannot write 'run/weights.safetensors'"), std::string::npos)
      << outcome.err;
}

}  // namespace
}  // namespace stagecoach::test
