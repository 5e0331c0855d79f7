// Where the time of a step goes: the parts add up, and each has the time of its own cause.

#include <gtest/gtest.h>

#include "core/random.h"
#include "parallel/schedule/bottleneck.h"
#include "parallel/schedule/lower.h"
#include "parallel/schedule/schedule_kinds.h"

namespace stagecoach {
namespace {

double sum_of(const SimulatedParts& parts) {
  return parts.ideal + parts.bubble + parts.imbalance + parts.messages + parts.update;
}

Schedule lowered_1f1b() { return lower(make_schedule("1f1b", 4, 8)); }

TEST(SimulatedParts, OfEqualStagesAreWorkAndBubble) {
  const SimulatedParts parts = simulated_parts(lowered_1f1b(), Costs::uniform(4, 1, 1, 1));
  EXPECT_DOUBLE_EQ(parts.ideal, 8 * 3);
  EXPECT_DOUBLE_EQ(parts.bubble, 3 * 3);
  EXPECT_DOUBLE_EQ(parts.imbalance, 0);
  EXPECT_DOUBLE_EQ(parts.messages, 0);
  EXPECT_DOUBLE_EQ(parts.update, 0);
}

TEST(SimulatedParts, OfASlowStageIsImbalance) {
  Costs costs = Costs::uniform(4, 1, 1, 1);
  costs.forward[3] = 3;
  costs.backward[3] = 4;
  const SimulatedParts parts = simulated_parts(lowered_1f1b(), costs);
  EXPECT_DOUBLE_EQ(parts.ideal, 8 * (3 * 3 + 7) / 4.0);
  EXPECT_DOUBLE_EQ(parts.bubble, 3 * 4);
  EXPECT_DOUBLE_EQ(parts.imbalance, (8 * 7 + 3 * 3) - 11 * 4);  // the last rank sets the pace
  EXPECT_DOUBLE_EQ(parts.messages, 0);
  EXPECT_DOUBLE_EQ(parts.update, 0);
}

TEST(SimulatedParts, OfOneRankIsWorkAndUpdate) {
  Costs costs = Costs::uniform(1, 1, 1, 1);
  costs.update = {5};
  const SimulatedParts parts = simulated_parts(lower(make_schedule("gpipe", 1, 8)), costs);
  EXPECT_DOUBLE_EQ(parts.ideal, 8 * 3);
  EXPECT_DOUBLE_EQ(parts.bubble, 0);
  EXPECT_DOUBLE_EQ(parts.update, 5);
}

TEST(SimulatedParts, OfMessagesIsTheirTravelThroughAllStages) {
  Costs costs = Costs::uniform(4, 1, 1, 1);
  costs.message = {0.5, 0.5, 0.5};
  const SimulatedParts parts = simulated_parts(lower(make_schedule("naive", 4, 2)), costs);
  EXPECT_DOUBLE_EQ(parts.ideal, 2 * 3);
  EXPECT_DOUBLE_EQ(parts.bubble, 3 * 2 * 3);
  EXPECT_DOUBLE_EQ(parts.messages, 2 * 6 * 0.5);
}

TEST(SimulatedParts, AddUpToTheStepOf200RandomRuns) {
  const Philox random(52);
  std::uint64_t drawn = 0;
  const auto draw = [&](int end) { return static_cast<int>(random.uniform(drawn++) * end); };
  for (int run = 0; run < 200; ++run) {
    const auto& names = schedule_names();
    const std::string& name = names[static_cast<std::size_t>(draw(static_cast<int>(names.size())))];
    const int p = 1 + draw(6);
    const Schedule schedule = lower(make_schedule(name, p, p * (1 + draw(4))));
    Costs costs = Costs::uniform(schedule.stage_count(), 1, 1, 1);
    for (auto* seconds : {&costs.forward, &costs.backward_input, &costs.backward_weight, &costs.message}) {
      for (double& one : *seconds) {
        one = 0.25 * draw(8);
      }
    }
    for (std::size_t s = 0; s < costs.backward.size(); ++s) {
      costs.backward[s] = costs.backward_input[s] + costs.backward_weight[s];
    }
    costs.transfer = costs.message;
    costs.update.assign(schedule.ranks.size(), draw(3));
    EXPECT_NEAR(sum_of(simulated_parts(schedule, costs)), simulate(schedule, costs).seconds, 1e-9) << name << " " << p;
  }
}

}  // namespace
}  // namespace stagecoach
