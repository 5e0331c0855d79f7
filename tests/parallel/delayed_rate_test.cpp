// Learning rates for gradients that come late, against the formulas of the papers.

#include "parallel/pipeline/delayed_rate.h"

#include <gtest/gtest.h>

namespace stagecoach {
namespace {

TEST(DelayedRate, IsTheRateItselfWithoutWishes) {
  EXPECT_DOUBLE_EQ(delayed_rate({.rate = 0.1}, 0, 0), 0.1);
  EXPECT_DOUBLE_EQ(delayed_rate({.rate = 0.1}, 7, 1000), 0.1);
}

TEST(DelayedRate, RisesInEqualSteps) {
  const RateSettings settings{.rate = 0.8, .warm_up = 4};
  EXPECT_DOUBLE_EQ(delayed_rate(settings, 3, 0), 0.2);
  EXPECT_DOUBLE_EQ(delayed_rate(settings, 3, 1), 0.4);
  EXPECT_DOUBLE_EQ(delayed_rate(settings, 3, 3), 0.8);
  EXPECT_DOUBLE_EQ(delayed_rate(settings, 3, 400), 0.8);
}

TEST(DelayedRate, IsDividedByTheDelayUntilThatFades) {
  const RateSettings settings{.rate = 0.8, .discount = 10};
  EXPECT_DOUBLE_EQ(delayed_rate(settings, 0, 0), 0.8);  // nothing comes late
  EXPECT_DOUBLE_EQ(delayed_rate(settings, 3, 0), 0.8 / 4);
  EXPECT_DOUBLE_EQ(delayed_rate(settings, 3, 5), 0.8 / 2);  // the square root
  EXPECT_DOUBLE_EQ(delayed_rate(settings, 3, 10), 0.8);
  EXPECT_DOUBLE_EQ(delayed_rate(settings, 3, 11), 0.8);
}

}  // namespace
}  // namespace stagecoach
