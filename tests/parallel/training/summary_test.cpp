// The table of five numbers at the end of a run.

#include "parallel/training/summary.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace stagecoach::test {
namespace {

EpochResult epoch(std::int64_t number, double seconds) {
  return {.epoch = number,
          .seconds = seconds,
          .clock = "virtual",
          .idle = 0.25,
          .peak_bytes = {3 << 20, 1 << 19},
          .prediction = {.ideal_idle = 0.2},
          .steps = 100,
          .links = {{.from = 0, .to = 1, .bytes = 1 << 17}, {.from = 1, .to = 0, .bytes = 1 << 18}}};
}

TEST(Summary, HasMediansWithoutTheFirstEpoch) {
  EXPECT_EQ(summary({epoch(1, 9), epoch(2, 1), epoch(3, 1.5), epoch(4, 7)}),
            "Summary, medians of epochs 2 to 4\n"
            "  step time        15.000 ms, virtual clock\n"
            "  idle share       25.0% (ideal 20.0%)\n"
            "  memory per rank  3.0, 0.5 MiB at most\n"
            "  bytes per link   0.250 MiB per step at most, from rank 1 to rank 0\n"
            "  staleness        0 updates: training is synchronous\n");
}

TEST(Summary, OfOneEpochAndOfLateGradients) {
  EpochResult only = epoch(1, 2);
  only.links = {};
  only.prediction.delays = {2, 1, 0};
  const std::string text = summary({only});
  EXPECT_NE(text.find("Summary, epoch 1\n  step time        20.000 ms"), std::string::npos) << text;
  EXPECT_NE(text.find("bytes per link   none: nothing is sent\n"), std::string::npos) << text;
  EXPECT_NE(text.find("staleness        2, 1, 0 updates at most, stage by stage\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace stagecoach::test
