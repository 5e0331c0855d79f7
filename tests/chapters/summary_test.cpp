/// @file
/// The five numbers of --summary.

#include <gtest/gtest.h>

#include <regex>
#include <string>

#include "tests/chapters/pipelines.h"

namespace stagecoach::test {
namespace {

class SummaryOfRuns : public PipelineTest {
 protected:
  void SetUp() override { make_data(128, 16); }
  /// Returns the row `name` of the summary of a run on the small data set.
  std::string row(const std::string& program, const std::string& name, const Flags& more) {
    const Flags flags{"--data", "data", "--batch-size", "32", "--epochs", "2", "--clock", "virtual", "--summary"};
    const Outcome outcome = run(program, joined(flags, more));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    std::smatch match;
    EXPECT_TRUE(std::regex_search(outcome.out, match, std::regex("\n  " + name + " +(.*)\n"))) << outcome.out;
    return match.empty() ? "" : match.str(1);
  }
};

TEST_F(SummaryOfRuns, LinksCarryWhatTheTableSays) {
  EXPECT_EQ(row(kCh01, "bytes per link", {}), "none: nothing is sent");
  // 32 images, [6, 14, 14] after the third layer: 32 x 1176 x 4 bytes, forwards and backwards alike.
  const Flags split{"--ranks", "2", "--split", "3,9"};
  const std::string border = "0.144 MiB per step at most, from rank 0 to rank 1";
  EXPECT_EQ(row(kCh02, "bytes per link", split), border);
  EXPECT_EQ(row(kCh03, "bytes per link", split), border);
  EXPECT_EQ(row(kCh04, "bytes per link", split), border);
  EXPECT_EQ(row(kCh05, "bytes per link", joined(split, {"--schedule", "1f1b"})), border);
}

TEST_F(SummaryOfRuns, LinksCarryTheGradientsOfSharedBatches) {
  // 62,006 weights of 4 bytes. A ring of 2 ranks sends all of them to the other one; half of the bytes as halves.
  const Flags two{"--ranks", "2"};
  EXPECT_EQ(row(kCh06, "bytes per link", two), "0.237 MiB per step at most, from rank 0 to rank 1");
  EXPECT_EQ(row(kCh06, "bytes per link", joined(two, {"--mode", "parameter"})),
            "0.237 MiB per step at most, from rank 0 to rank 1");
  EXPECT_EQ(row(kCh06, "bytes per link", joined(two, {"--compress", "half"})),
            "0.118 MiB per step at most, from rank 0 to rank 1");
}

TEST_F(SummaryOfRuns, StalenessIsThatOfTheLedger) {
  const Flags ranks{"--ranks", "3"};
  EXPECT_EQ(row(kCh03, "staleness", ranks), "0 updates: training is synchronous");
  EXPECT_EQ(row(kCh04, "staleness", ranks), "2, 1, 0 updates at most, stage by stage");
}

TEST_F(SummaryOfRuns, IsOfATraining) {
  expect_refused(kCh03, {"--smoke", "--explain", "--summary"}, {"--summary: --explain trains nothing"});
}

}  // namespace
}  // namespace stagecoach::test
