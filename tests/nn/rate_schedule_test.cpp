// Learning rates over the steps of a training, against the formulas.

#include "nn/rate_schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace stagecoach {
namespace {

TEST(RateSchedule, IsConstantByDefault) {
  const RateSchedule rate;
  EXPECT_TRUE(rate.is_constant());
  EXPECT_EQ(rate.factor(0), 1);
  EXPECT_EQ(rate.factor(1'000'000), 1);
}

TEST(RateSchedule, RisesLinearly) {
  const RateSchedule rate{.warm_up = 4};
  EXPECT_FALSE(rate.is_constant());
  for (const int step : {0, 1, 3}) {
    EXPECT_DOUBLE_EQ(rate.factor(step), (step + 1) / 4.0);
  }
  EXPECT_DOUBLE_EQ(rate.factor(400), 1);
}

/// PyTorch's CosineAnnealingLR with T_max = 50 and eta_min = 0, after the warm-up.
TEST(RateSchedule, FallsAlongACosine) {
  const RateSchedule rate{.shape = RateShape::cosine, .warm_up = 10, .steps = 60};
  EXPECT_DOUBLE_EQ(rate.factor(4), 0.5);
  for (int step = 10; step <= 60; ++step) {
    EXPECT_NEAR(rate.factor(step), 0.5 * (1 + std::cos(std::numbers::pi * (step - 10) / 50)), 1e-15);
  }
  EXPECT_DOUBLE_EQ(rate.factor(35), 0.5);
  EXPECT_NEAR(rate.factor(61), 0, 1e-15);
}

TEST(RateSchedule, FallsInSteps) {
  const RateSchedule rate{.shape = RateShape::step, .steps = 30};
  EXPECT_EQ(rate.factor(9), 1);
  EXPECT_EQ(rate.factor(10), 0.1);
  EXPECT_EQ(rate.factor(19), 0.1);
  EXPECT_EQ(rate.factor(20), 0.01);
  EXPECT_EQ(rate.factor(1000), 0.01);
}

}  // namespace
}  // namespace stagecoach
