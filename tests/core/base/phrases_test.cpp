#include "core/base/phrases.h"

#include <gtest/gtest.h>

namespace stagecoach {
namespace {

TEST(Phrases, OneThingIsInTheSingular) {
  EXPECT_EQ(counted(1, "link"), "1 link");
  EXPECT_EQ(counted(1, "class"), "1 class");
  EXPECT_EQ(counted(0, "image"), "0 images");
  EXPECT_EQ(counted(2, "class"), "2 classes");
  EXPECT_EQ(counted(3, "batch"), "3 batches");
  EXPECT_EQ(counted(6, "epoch"), "6 epochs");
  EXPECT_EQ(counted(4, "rank"), "4 ranks");
}

TEST(Phrases, AListHasThreeNames) {
  EXPECT_EQ(first_few({}), "");
  EXPECT_EQ(first_few({"a", "b", "c"}), "a, b, c");
  EXPECT_EQ(first_few({"a", "b", "c", "d", "e"}), "a, b, c, and 2 more");
}

}  // namespace
}  // namespace stagecoach
