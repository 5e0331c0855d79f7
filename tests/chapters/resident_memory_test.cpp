// Each process of a pipeline takes the memory of its own stages, as predicted, and less than one device does.

#include <algorithm>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include "tests/chapters/processes.h"
#include "tests/support/sanitized.h"

namespace stagecoach::test {
namespace {

const std::string kPeakMemory = program_path("peak_memory");
constexpr double kProgram = 60;  // MiB: the program, its libraries, MPI, and the images
constexpr double kShare = 1.15;

class ResidentMemory : public ProcessTest {
 protected:
  void SetUp() override {
    ProcessTest::SetUp();
    if (kSanitized) {
      GTEST_SKIP() << "sanitizers take memory of their own";
    }
  }
  /// The peak of the process that left `file`, in MiB.
  double peak(const std::string& file) {
    double kib = 0;
    std::ifstream(folder() / file) >> kib;
    EXPECT_GT(kib, 0) << file;
    return kib / 1024;
  }
  /// The totals that --explain --profile predicts for each rank, in MiB: `form` finds one of them.
  std::vector<double> predicted(const std::string& program, const Flags& flags, const std::regex& form) {
    const Outcome outcome = run(program, joined(flags, {"--explain", "--profile"}));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    const std::string table = outcome.out.substr(std::min(outcome.out.rfind("in MiB"), outcome.out.size()));
    std::vector<double> totals;
    for (std::sregex_iterator line(table.begin(), table.end(), form); line != std::sregex_iterator(); ++line) {
      totals.push_back(std::stod(line->str(1)));
    }
    return totals;
  }
  /// Runs four processes and checks each one's peak.
  void expect_predicted(const std::string& name, const std::string& program, const Flags& flags,
                        const std::vector<double>& wanted, double one_device) {
    const Outcome outcome =
        mpirun(4, kPeakMemory, joined({name, program, "--transport", "mpi", "--out", name + "_run"}, flags));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    ASSERT_EQ(wanted.size(), 4U);
    for (std::size_t rank = 0; rank < wanted.size(); ++rank) {
      const double resident = peak(name + "." + std::to_string(rank));
      EXPECT_LT(resident, kShare * wanted[rank] + kProgram) << name << ", rank " << rank;
      EXPECT_GT(resident, 0.9 * wanted[rank]) << name << ", rank " << rank << ": more is predicted than is taken";
      EXPECT_LT(resident, one_device) << name << ", rank " << rank;
    }
  }
};

// Training, testing and saving; with several versions of the weights; and from a checkpoint.
TEST_F(ResidentMemory, OfEachProcessIsThatOfItsOwnStages) {
  make_data(128, 32);
  const Flags one{"--data", "data", "--model", "resnet50", "--batch-size", "64", "--microbatches", "4"};
  const Flags four = joined(one, {"--ranks", "4", "--split", "4,6,6,6"});
  const Outcome alone = run(kPeakMemory, joined({"one", kCh01, "--epochs", "1", "--out", "one_run"}, one));
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  const double one_device = peak("one");
  const auto wanted = predicted(kCh03, four, std::regex("\n  [0-9]+ +([0-9.]+)"));
  expect_predicted("trained", kCh03, joined(four, {"--epochs", "1"}), wanted, one_device);
  EXPECT_TRUE(bytes("trained_run/weights.safetensors") == bytes("one_run/weights.safetensors"));
  const Flags stash = joined(four, {"--epochs", "1"});
  expect_predicted("stashed", kCh04, stash, predicted(kCh04, four, std::regex("resident memory ([0-9.]+)")),
                   one_device);
  expect_predicted("resumed", kCh03, {"--resume", "trained_run", "--epochs", "2", "--ranks", "4", "--split", "4,6,6,6"},
                   wanted, one_device);
}

}  // namespace
}  // namespace stagecoach::test
