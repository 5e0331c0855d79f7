#include "chapters/common/prediction.h"

#include <gtest/gtest.h>

#include <vector>

#include "parallel/launch/launch.h"

namespace stagecoach {
namespace {

// Each cost by itself is that of the rank that is slowest there, and all ranks get the same.
TEST(SlowestOf, TakesTheLargestOfEachCost) {
  launch({.ranks = 3}, [](Rank& rank) {
    const double r = rank.index;
    const Costs mine{.forward = {1 + r, 5 - r},
                     .backward = {2, 2 + r},
                     .backward_input = {3 - r, 3},
                     .backward_weight = {0, r},
                     .message = {7},
                     .update = {4 - r, 1, r}};
    const Costs slowest = slowest_of(mine, rank.comm);
    EXPECT_EQ(slowest.forward, (std::vector<double>{3, 5}));
    EXPECT_EQ(slowest.backward, (std::vector<double>{2, 4}));
    EXPECT_EQ(slowest.backward_input, (std::vector<double>{3, 3}));
    EXPECT_EQ(slowest.backward_weight, (std::vector<double>{0, 2}));
    EXPECT_EQ(slowest.update, (std::vector<double>{4, 1, 2}));
    EXPECT_EQ(slowest.message, mine.message) << "a link's time is no rank's";
  });
}

}  // namespace
}  // namespace stagecoach
