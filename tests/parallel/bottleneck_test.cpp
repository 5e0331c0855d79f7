// The stage that holds up an unbalanced pipeline.

#include "parallel/schedule/bottleneck.h"

#include <gtest/gtest.h>

#include "parallel/schedule/lower.h"
#include "parallel/schedule/pipedream.h"
#include "parallel/schedule/schedule_kinds.h"
#include "parallel/schedule/text.h"

namespace stagecoach {
namespace {

TEST(Bottleneck, IsNowhereWhereRanksAreEqual) {
  EXPECT_FALSE(find_bottleneck(lower(make_schedule("gpipe", 4, 8)), Costs::uniform(4, 1, 1, 1)));
  EXPECT_FALSE(find_bottleneck(lower(make_schedule("gpipe", 1, 8)), Costs::uniform(1, 1, 1, 1)));
  Costs costs = Costs::uniform(4, 1, 1, 1);  // stages 0 and 3 are on rank 0, 1 and 2 on rank 1
  costs.forward = {1, 2, 3, 4};
  EXPECT_FALSE(find_bottleneck(lower(make_schedule("zbv", 2, 8)), costs));
}

TEST(Bottleneck, OfAStraightPipelineIsItsSlowestStage) {
  Costs costs = Costs::uniform(4, 1, 1, 1);
  costs.forward[2] = 3;
  costs.backward[2] = 6;
  const auto found = find_bottleneck(lower(make_schedule("1f1b", 4, 8)), costs);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 2);
  EXPECT_EQ(found->stage, 2);
  EXPECT_DOUBLE_EQ(found->busy, 8 * 9);
  EXPECT_DOUBLE_EQ(found->excess, 9 / 4.5);
  // Rank 2 sets the pace: its work, two forwards before it and two backwards after it. Equal, a stage takes 4.5.
  EXPECT_DOUBLE_EQ(found->speedup, (8 * 9 + 2 * 1 + 2 * 2) / ((8 + 3) * 4.5));
}

// The rank is named by all its work, the stage by its own.
TEST(Bottleneck, OfChunksIsTheSlowestOfTheBusiestRank) {
  Costs costs = Costs::uniform(4, 1, 1, 1);
  costs.backward_weight = {1, 4, 2, 1};  // ranks 0 and 1 have stages 0 and 3, 1 and 2
  const auto found = find_bottleneck(lower(make_schedule("zbv", 2, 8)), costs);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 1);
  EXPECT_EQ(found->stage, 1);
  EXPECT_DOUBLE_EQ(found->busy, 8 * 10);
  EXPECT_DOUBLE_EQ(found->excess, 10 / 8.0);
  EXPECT_GT(found->speedup, 1);
}

// A student's table may give a rank more stages than another: equal ranks then have unequal stages.
TEST(Bottleneck, WouldBeGoneWhereRanksAreEqualAndStagesAreNot) {
  const Schedule schedule = lower(schedule_from_text("0F0,1F0,0F1,1F1,1B0,0B0,1B1,0B1\n2F0,2B0,2F1,2B1\n", "table"));
  Costs costs = Costs::uniform(3, 1, 1, 1);
  const auto found = find_bottleneck(schedule, costs);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 0);
  Costs equal = Costs::uniform(3, 0.75, 0.75, 0.75);  // a rank has half of 3, rank 0 in two stages
  for (auto* seconds : {&equal.forward, &equal.backward, &equal.backward_input, &equal.backward_weight}) {
    seconds->back() *= 2;
  }
  EXPECT_FALSE(find_bottleneck(schedule, equal));
  EXPECT_DOUBLE_EQ(found->speedup, simulate(schedule, costs).seconds / simulate(schedule, equal).seconds);
}

TEST(Bottleneck, CountsReplicasAsTheyShareTheWork) {
  const Schedule schedule = lower(pipedream_schedule({2, 1}, 16, 4, Versions::flush));
  Costs costs = Costs::uniform(2, 1, 1, 1);
  costs.forward[0] = 2;
  costs.backward[0] = 4;
  EXPECT_FALSE(find_bottleneck(schedule, costs)) << "two ranks share the slower stage";
  costs.backward[1] = 5;
  const auto found = find_bottleneck(schedule, costs);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 2);
  EXPECT_EQ(found->stage, 1);
}

}  // namespace
}  // namespace stagecoach
