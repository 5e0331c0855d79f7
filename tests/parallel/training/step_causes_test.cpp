// Where the time of a step goes, as it was measured.

#include "parallel/training/step_causes.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace stagecoach {
namespace {

using Parts = std::map<std::string, double>;

Parts parts_of(const MeasuredTimes& measured, const StepCauses& causes) {
  const NamedNumbers parts = step_parts(measured, causes);
  return {parts.begin(), parts.end()};
}

TEST(StepCauses, OfOneRankAreItsOwnWorkAndItsWaitsForData) {
  const Parts parts = parts_of({.step = 16, .working = 14, .updating = 4, .loading = 1, .waiting_for_data = 2}, {});
  EXPECT_EQ(parts, (Parts{{"ideal", 9},
                          {"bubble", 0},
                          {"imbalance", 0},
                          {"messages", 0},
                          {"reductions", 0},
                          {"update", 4},
                          {"host", 3}}));
}

TEST(StepCauses, WhatIsNotExplainedIsImbalance) {
  const Parts parts = parts_of({.step = 16, .working = 8}, {.bubble = 2, .messages = 1, .reductions = 2});
  EXPECT_EQ(parts.at("bubble"), 2);
  EXPECT_EQ(parts.at("imbalance"), 3);
  EXPECT_EQ(parts.at("host"), 0);
}

TEST(StepCauses, WhatKnownWaitsLackIsHost) {
  const Parts parts = parts_of({.step = 16, .working = 8, .loading = 0.5, .waiting_for_data = 1},
                               {.bubble = 3.75, .messages = 1, .reductions = 1, .all = 6});
  EXPECT_EQ(parts.at("ideal"), 7.5);
  EXPECT_EQ(parts.at("bubble"), 3.75);
  EXPECT_EQ(parts.at("imbalance"), 0.25);
  EXPECT_EQ(parts.at("host"), 2.5) << "its own work, and all ranks wait for the one that waits for its data";
}

}  // namespace
}  // namespace stagecoach
