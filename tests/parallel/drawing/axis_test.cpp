// Ticks and axes.
#include "parallel/drawing/axis.h"

#include <gtest/gtest.h>

#include <cmath>

namespace stagecoach {
namespace {

std::string labels(double low, double high, int count = 5, double min_step = 0) {
  std::string all;
  for (const Tick& tick : nice_ticks(low, high, count, min_step)) {
    all += (all.empty() ? "" : " ") + tick.label;
  }
  return all;
}

TEST(NiceTicks, AreRoundNumbersWithTheDigitsThatTheyNeed) {
  EXPECT_EQ(labels(0, 10), "0 2 4 6 8 10");
  EXPECT_EQ(labels(0, 33, 10), "0 5 10 15 20 25 30");
  EXPECT_EQ(labels(0.887, 2.302), "1.0 1.2 1.4 1.6 1.8 2.0 2.2");
  EXPECT_EQ(labels(0, 0.0031), "0.0000 0.0005 0.0010 0.0015 0.0020 0.0025 0.0030");
  EXPECT_EQ(labels(-1, 1), "-1.0 -0.5 0.0 0.5 1.0");
  EXPECT_EQ(labels(0, 5e6), "0 1e+06 2e+06 3e+06 4e+06 5e+06");
  EXPECT_EQ(labels(1, 3, 5, 1), "1 2 3");
}

TEST(NiceTicks, OfOddRanges) {
  EXPECT_EQ(labels(7, 7), "7");
  for (const double low : {0.0, 1e16, -1e300}) {
    EXPECT_LE(nice_ticks(low, std::nextafter(low, INFINITY)).size(), 100U);
  }
  EXPECT_FALSE(nice_ticks(1e-300, 2e-300).empty());
}

TEST(Axis, PlacesValues) {
  const Axis linear(0, 10, 100, 200);
  EXPECT_DOUBLE_EQ(linear.at(0), 100);
  EXPECT_DOUBLE_EQ(linear.at(5), 150);
  const Axis powers(1, 256, 0, 400, AxisKind::logarithmic);
  EXPECT_DOUBLE_EQ(powers.at(4), 100);
  EXPECT_DOUBLE_EQ(powers.at(256), 400);
  EXPECT_DOUBLE_EQ(Axis(3, 3, 0, 10).at(3), 5);
}

}  // namespace
}  // namespace stagecoach
