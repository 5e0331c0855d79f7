// Learning rates of stages whose gradients are late.

#include "parallel/pipeline/delayed_rate.h"

#include <gtest/gtest.h>

namespace stagecoach {
namespace {

TEST(DelayDivisor, IsOneWithoutDiscount) {
  EXPECT_DOUBLE_EQ(delay_divisor(0, 0, 0), 1);
  EXPECT_DOUBLE_EQ(delay_divisor(0, 7, 1000), 1);
}

TEST(DelayDivisor, FadesOutOverTheDiscount) {
  EXPECT_DOUBLE_EQ(delay_divisor(10, 0, 0), 1);  // nothing comes late
  EXPECT_DOUBLE_EQ(delay_divisor(10, 3, 0), 4);
  EXPECT_DOUBLE_EQ(delay_divisor(10, 3, 5), 2);  // the square root
  EXPECT_DOUBLE_EQ(delay_divisor(10, 3, 10), 1);
  EXPECT_DOUBLE_EQ(delay_divisor(10, 3, 11), 1);
}

}  // namespace
}  // namespace stagecoach
