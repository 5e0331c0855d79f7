/// @file
/// That the training learns: some minutes, so these tests carry the label `slow`.

#include <cstdlib>
#include <regex>

#include "tests/chapters/program.h"

namespace stagecoach::test {
namespace {

struct LoggedEpoch {
  double loss;
  double accuracy;
  double test_accuracy;
};

std::vector<LoggedEpoch> epochs_of(const std::string& out) {
  const std::regex line(R"(Epoch: \d+, Loss: ([\d.]+), acc: ([\d.]+), .* test acc: ([\d.]+),)");
  std::vector<LoggedEpoch> epochs;
  for (std::sregex_iterator at(out.begin(), out.end(), line), end; at != end; ++at) {
    epochs.push_back({std::stod((*at)[1]), std::stod((*at)[2]), std::stod((*at)[3])});
  }
  return epochs;
}

class Ch01Learning : public ProgramTest {
 protected:
  std::string cifar10() {
    const char* folder = std::getenv("STAGECOACH_CIFAR10");
    return folder == nullptr ? "" : folder;
  }
};

TEST_F(Ch01Learning, GeneratedShapesToOverNinetyPercent) {
  const Outcome outcome = ch01({"--data", "generated", "--optimizer", "adam", "--epochs", "12"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_GT(epochs_of(outcome.out).back().test_accuracy, 0.90) << outcome.out;
}

/// The published log of the course that chapter 1 follows.
TEST_F(Ch01Learning, SoftmaxHeadGivesThePublishedLog) {
  if (cifar10().empty()) {
    GTEST_SKIP() << "set STAGECOACH_CIFAR10 to a folder with CIFAR-10";
  }
  const double losses[] = {2.12, 2.03, 2.00, 1.97, 1.95, 1.94, 1.92, 1.91, 1.90, 1.88};
  const double accuracies[] = {.34, .43, .46, .48, .50, .52, .54, .55, .56, .58};
  const Outcome outcome = ch01({"--data", cifar10(), "--head", "softmax", "--optimizer", "adam", "--lr", "0.001",
                                "--batch-size", "64", "--epochs", "10"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto epochs = epochs_of(outcome.out);
  ASSERT_EQ(epochs.size(), 10U);
  for (std::size_t i = 0; i < 10; ++i) {
    EXPECT_NEAR(epochs[i].loss, losses[i], 0.04) << "epoch " << i + 1;
    EXPECT_NEAR(epochs[i].accuracy, accuracies[i], 0.05) << "epoch " << i + 1;
  }
}

TEST_F(Ch01Learning, LogitsPassSixtyPercent) {
  if (cifar10().empty()) {
    GTEST_SKIP() << "set STAGECOACH_CIFAR10 to a folder with CIFAR-10";
  }
  const Outcome outcome = ch01({"--data", cifar10(), "--head", "logits", "--optimizer", "adam", "--lr", "0.001",
                                "--batch-size", "64", "--epochs", "10"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_GT(epochs_of(outcome.out).back().test_accuracy, 0.60) << outcome.out;
}

}  // namespace
}  // namespace stagecoach::test
