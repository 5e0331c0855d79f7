// Times, idle shares and peaks against the formulas of the papers.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/base/error.h"
#include "parallel/schedule/lower.h"
#include "parallel/schedule/pipedream.h"
#include "parallel/schedule/schedule_kinds.h"
#include "parallel/schedule/simulate.h"
#include "parallel/schedule/text.h"
#include "tests/support/errors.h"

namespace stagecoach {
namespace {

using test::fails_with;

/// A forward takes 1 per rank, a backward 2, spread over `v` chunks.
Costs unit_costs(int p, int v) { return Costs::uniform(p * v, 1.0 / v, 1.0 / v, 1.0 / v); }

Simulation simulated(const std::string& name, int p, int m, int v = 1, int group = 0) {
  return simulate(lower(make_schedule(name, p, m, v, group)), unit_costs(p, v));
}

/// Returns that nothing precedes any of the actions.
ActionSeconds nothing_before(ActionSeconds seconds) {
  for (std::vector<double>& rank : seconds) {
    std::fill(rank.begin(), rank.end(), 0);
  }
  return seconds;
}

TEST(Simulate, OneRankIsNeverIdle) {
  for (const std::string& name : schedule_names()) {
    const Simulation result = simulated(name, 1, 5, find_schedule(name)->min_chunks);
    EXPECT_NEAR(result.seconds, 15, 1e-12) << name;
    EXPECT_NEAR(result.idle, 0, 1e-12) << name;
  }
}

TEST(Simulate, IdleSharesOfThePapers) {
  for (const int p : {2, 3, 4, 8}) {
    for (const int m : {1, 2, 4, 7, 8, 16, 32}) {
      SCOPED_TRACE(fmt::format("{} ranks, {} micro-batches", p, m));
      const double wanted = static_cast<double>(p - 1) / (m + p - 1);
      EXPECT_NEAR(simulated("naive", p, m).idle, static_cast<double>(p - 1) / p, 1e-12);
      EXPECT_NEAR(simulated("gpipe", p, m).idle, wanted, 1e-12);
      EXPECT_NEAR(simulated("1f1b", p, m).idle, wanted, 1e-12) << "1F1B saves memory over GPipe, not time";
      if (m % p == 0) {
        for (const int v : {2, 3, 4}) {
          EXPECT_NEAR(simulated("interleaved", p, m, v).idle, static_cast<double>(p - 1) / (v * m + p - 1), 1e-12) << v;
        }
      }
      if (m >= p) {
        EXPECT_NEAR(simulated("zb-h1", p, m).idle, static_cast<double>(p - 1) / (3 * m + p - 1), 1e-12);
      }
    }
  }
}

// An uneven last group: the size of the group makes the difference.
TEST(Simulate, GroupsOfTheInterleavedOrder) { EXPECT_NEAR(simulated("interleaved", 4, 10, 2, 5).idle, 0.130, 0.0005); }

TEST(Simulate, ASpanEndsWithARanksLastAction) {
  // GPipe on 2 ranks: rank 1 begins late and ends early; within its own span it never waits.
  const Simulation result = simulated("gpipe", 2, 4);
  EXPECT_NEAR(result.seconds, 15, 1e-12);
  EXPECT_NEAR(result.idle, 0.2, 1e-12);
  EXPECT_NEAR(result.idle_in_span, 3.0 / 27, 1e-12);  // rank 0 waits 3 between its forwards and backwards
}

TEST(Simulate, MessagesTakeTheirTime) {
  Costs costs = unit_costs(2, 1);
  costs.message[0] = 0.5;
  // F0 on both ranks, the backward of rank 1, and two messages between.
  EXPECT_NEAR(simulate(lower(make_schedule("1f1b", 2, 1)), costs).seconds, 1 + 0.5 + 1 + 2 + 0.5 + 2, 1e-12);
}

// Rank 0 makes a message a unit, and the link is taken for 3 by each: they queue.
TEST(Simulate, MessagesWaitForThoseBeforeThem) {
  Costs costs = unit_costs(2, 1);
  costs.message[0] = 3.5;  // 0.5 of it latency
  costs.transfer = {3};
  const Schedule schedule = lower(make_schedule("gpipe", 2, 4));
  const Simulation result = simulate(schedule, costs);
  // The forwards on rank 1 begin at 4.5, 7.5, 10.5, 13.5. Its backwards end at 16.5, 18.5, 20.5, 22.5; their messages
  // arrive at 20, 23, 26, 29, and rank 0 then works for 2.
  const auto start = [&](const Action& action) {
    const auto rank = static_cast<std::size_t>(action.stage);
    const auto& actions = schedule.ranks[rank];
    const auto index = std::find(actions.begin(), actions.end(), action) - actions.begin();
    return result.timeline[rank][static_cast<std::size_t>(index)].start;
  };
  EXPECT_NEAR(start({Operation::forward, 1, 3}), 13.5, 1e-12);
  EXPECT_NEAR(start({Operation::backward, 0, 0}), 20, 1e-12);
  EXPECT_NEAR(start({Operation::backward, 0, 3}), 29, 1e-12);
  EXPECT_NEAR(result.seconds, 31, 1e-12);
}

TEST(Simulate, StagesOnOneRankNeedNoMessage) {
  const Schedule schedule = lower(schedule_from_text("0F0,1F0,1B0,0B0", "here"));
  Costs costs = unit_costs(2, 1);
  costs.message[0] = 100;
  EXPECT_NEAR(simulate(schedule, costs).seconds, 6, 1e-12);
}

TEST(Simulate, TheSlowestStageSetsThePace) {
  Costs costs = unit_costs(2, 1);
  costs.forward[1] = 3;
  costs.backward[1] = 6;
  const Simulation result = simulate(lower(make_schedule("1f1b", 2, 16)), costs);
  EXPECT_NEAR(result.seconds, 1 + 16 * 9 + 2, 1e-9);
}

TEST(Simulate, TheTimelineKeepsEveryOrder) {
  const Schedule schedule = lower(make_schedule("interleaved", 4, 8, 2));
  const Simulation result = simulate(schedule, unit_costs(4, 2));
  for (std::size_t r = 0; r < 4; ++r) {
    ASSERT_EQ(result.timeline[r].size(), schedule.ranks[r].size());
    for (std::size_t i = 1; i < result.timeline[r].size(); ++i) {
      EXPECT_GE(result.timeline[r][i].start, result.timeline[r][i - 1].end);
    }
  }
}

TEST(Simulate, NeedsCostsForEveryStageAndALegalSchedule) {
  EXPECT_TRUE(fails_with<Error>({"the costs of 4 stages, got 2"},
                                [] { simulate(lower(make_schedule("gpipe", 4, 2)), unit_costs(2, 1)); }));
  EXPECT_TRUE(fails_with<Error>({"expected a legal schedule"}, [] {
    simulate(lower(schedule_from_text("0F0,0B0\n1B0,1F0", "here")), unit_costs(2, 1));
  }));
}

TEST(Simulate, HoldsForLargeClusters) {
  const Schedule schedule = lower(make_schedule("interleaved", 64, 256, 2));
  EXPECT_NEAR(simulate(schedule, unit_costs(64, 2)).idle, 63.0 / (2 * 256 + 63), 1e-9);
}

// Steps in a row: rank 0 has the first and the last action of a step, so a step begins when the one before has ended,
// its update included.
TEST(SteadyState, OfAPipelineIsItsStep) {
  Costs costs = Costs::uniform(4, 1, 1, 1);
  const Schedule schedule = lower(make_schedule("1f1b", 4, 8));
  EXPECT_DOUBLE_EQ(simulate_steady_state(schedule, costs).seconds, simulate(schedule, costs).seconds);
  EXPECT_NEAR(simulate_steady_state(schedule, costs).idle, 3.0 / 11, 1e-12);
  costs.update = {2, 0, 0, 0};
  EXPECT_DOUBLE_EQ(simulate_steady_state(schedule, costs).seconds, 33 + 2);
  costs.update = {0, 0, 0, 2};  // while the gradient travels back to rank 0
  EXPECT_DOUBLE_EQ(simulate_steady_state(schedule, costs).seconds, 33);
  EXPECT_DOUBLE_EQ(simulate(schedule, costs).seconds, 33);
  EXPECT_NEAR(simulate_steady_state(schedule, costs).idle, 1 - (4 * 24.0 + 2) / (4 * 33), 1e-12);
}

// Steps need not end everywhere before the next begins: rank 3, which ends last, starts the next step last too.
TEST(SteadyState, IsShorterThanAStepWhereOnlyTheEndsAreSkewed) {
  const Schedule schedule = lower(make_schedule("1f1b", 4, 8));
  Costs costs = Costs::uniform(4, 1, 1, 1);
  costs.update = {0, 0, 0, 10};
  EXPECT_DOUBLE_EQ(simulate(schedule, costs).seconds, 27 + 10);
  EXPECT_DOUBLE_EQ(simulate_steady_state(schedule, costs).seconds, 24 + 10);  // rank 3 is never idle
  EXPECT_DOUBLE_EQ(simulate_steady_state(schedule, costs).fill, 3) << "n steps take 3 + 34 n";
}

TEST(Simulate, WorkAfterAnActionDelaysTheNextOneButNotItsMessage) {
  const Schedule schedule = lower(make_schedule("gpipe", 2, 2));  // 0F0 0F1 0B0 0B1; 1F0 1F1 1B0 1B1
  Costs costs = Costs::uniform(2, 1, 1, 1);
  EXPECT_DOUBLE_EQ(simulate(schedule, costs).seconds, 9);
  costs.after = {{{Operation::forward, 0}, 0.5}};  // after 0F0; after 0F1, rank 0 waits anyway
  EXPECT_DOUBLE_EQ(simulate(schedule, costs).seconds, 9.5);
  costs.after = {{{Operation::update, 0}, 0.5}};  // before the next step
  EXPECT_DOUBLE_EQ(simulate(schedule, costs).seconds, 9);
  EXPECT_DOUBLE_EQ(simulate(schedule, costs).busy[0], 6);
  EXPECT_DOUBLE_EQ(simulate_steady_state(schedule, costs).seconds, 9.5);
}

// The first backward of each step of rank 1 is shorter.
TEST(Simulate, ReplaysStepsWithTheTimeOfEachAction) {
  const Schedule schedule = lower(make_schedule("gpipe", 2, 2));  // 0F0 0F1 0B0 0B1; 1F0 1F1 1B0 1B1
  const Costs costs = Costs::uniform(2, 1, 1, 1);
  const ActionSeconds seconds{{1, 1, 2, 2, 0, 1, 1, 2, 2, 0}, {1, 1, 1, 2, 0, 1, 1, 1, 2, 0}};
  const auto replay = replay_steps(schedule, costs, seconds, nothing_before(seconds), 2);
  ASSERT_TRUE(replay.has_value());
  EXPECT_DOUBLE_EQ(replay->seconds, 16);
  EXPECT_DOUBLE_EQ(replay->idle, 1 - 2 * (6 + 5) / (2 * 16.0));
  EXPECT_FALSE(replay_steps(schedule, costs, seconds, nothing_before(seconds), 3).has_value())
      << "these are the times of two steps";
}

TEST(Simulate, ReplaysALastStepOfFewerMicroBatches) {
  const Schedule schedule = lower(make_schedule("gpipe", 2, 2));
  const Costs costs = Costs::uniform(2, 1, 1, 1);
  const ActionSeconds seconds{{1, 1, 2, 2, 0, 1, 2, 0}, {1, 1, 2, 2, 0, 1, 2, 0}};
  const auto replay = replay_steps(schedule, costs, seconds, nothing_before(seconds), 2, {1});
  ASSERT_TRUE(replay.has_value());
  EXPECT_DOUBLE_EQ(replay->seconds, 9 + 6);
  EXPECT_DOUBLE_EQ(replay->idle, 1 - 2 * (6 + 3) / (2 * 15.0));
  EXPECT_FALSE(replay_steps(schedule, costs, seconds, nothing_before(seconds), 2, {1, 1}).has_value())
      << "a time for each action is needed";
}

// Rank 1 begins when all of micro-batch 0 has arrived. The link is free for micro-batch 1, which is half as large.
// Updates take 3 on rank 0 and 4 on rank 1, of which 1 and 2 come before the ranks meet; the sum takes 5.
TEST(Simulate, UpdatesMeet) {
  for (const int batch : {0, 2}) {
    Schedule schedule =
        batch == 0 ? lower(make_schedule("1f1b", 2, 2)) : lower(pipedream_schedule({1, 1}, 4, batch, Versions::flush));
    Costs costs = unit_costs(2, 1);
    costs.update = {3, 4};
    const Simulation apart = simulate(schedule, costs);
    schedule.rendezvous = {0, 1};
    costs.norm_work = {1, 2};
    costs.norm_exchange = {0.5, 0};
    costs.norm_sum = 5;
    const Simulation together = simulate(schedule, costs);
    // Rank 0 ends the backwards of a batch last, at 9, and rank 1 at 7.
    EXPECT_NEAR(apart.ends[0], batch == 0 ? 9 + 3 : 2 * (9 + 3), 1e-12);
    EXPECT_NEAR(together.ends[0], (batch == 0 ? 1 : 2) * (9 + 1 + 0.5 + 5 + 2), 1e-12);
    EXPECT_NEAR(together.ends[1], (batch == 0 ? 1 : 2) * (9 + 1 + 0.5 + 5 + 2), 1e-12);
    EXPECT_EQ(together.busy, apart.busy) << "to wait for a norm is not work";
  }
}

// Over its slow link the other pipeline is late, and so are the sums of gradients and all updates.
TEST(Simulate, PipelinesBesideEachOtherMeet) {
  Schedule schedule = with_reductions(lower(make_schedule("gpipe", 2, 1)));  // 0F0 0B0; 1F0 1B0
  Costs costs = unit_costs(2, 1);
  costs.update = {3, 1};
  costs.average = {5, 5};
  const Simulation alone = simulate(schedule, costs);
  EXPECT_DOUBLE_EQ(alone.seconds, 1 + 1 + 2 + 2 + 5 + 3);
  costs.other_pipelines = {{.message = {0.5}, .transfer = {}}};
  const Simulation beside = simulate(schedule, costs);
  EXPECT_DOUBLE_EQ(beside.timeline[0][3].start, 4) << "the backward of the first pipeline is not late";
  EXPECT_DOUBLE_EQ(beside.timeline[0][4].start, 6 + 2 * 0.5) << "the sum is";
  EXPECT_DOUBLE_EQ(beside.ends[1], 1 + 0.5 + 1 + 2 + 5 + 1);
  EXPECT_DOUBLE_EQ(beside.seconds, alone.seconds + 2 * 0.5);
  schedule = lower(make_schedule("gpipe", 2, 1));
  EXPECT_DOUBLE_EQ(simulate(schedule, costs).ends[0], 6 + 3);
  schedule.rendezvous = {0, 1};
  EXPECT_DOUBLE_EQ(simulate(schedule, costs).ends[0], 6 + 2 * 0.5 + 3);
}

// The work before each action takes the place of the mean work after others. A receive is posted after it.
TEST(Simulate, ReplaysTheWorkBeforeEachAction) {
  const Schedule schedule = lower(make_schedule("gpipe", 2, 1));  // 0F0 0B0; 1F0 1B0
  Costs costs = Costs::uniform(2, 1, 1, 1);
  costs.after = {{{Operation::forward, 0}, 100}};
  const ActionSeconds seconds{{1, 2, 0, 1, 2, 0}, {1, 2, 0, 1, 2, 0}};
  const ActionSeconds before{{0.5, 0, 0, 0, 0, 4}, {0, 0.25, 0, 9, 0, 0}};
  const auto replay = replay_steps(schedule, costs, seconds, before, 2);
  ASSERT_TRUE(replay.has_value());
  EXPECT_DOUBLE_EQ(replay->seconds, 0.5 + 1 + 1 + 0.25 + 2 + 2 + (9 - 2 + 1 + 2 + 2) + 4);
  EXPECT_DOUBLE_EQ(replay->idle, 1 - (12 + 13.75) / (2 * replay->seconds));
}

TEST(Simulate, SmallMicroBatchesTakeTheLinkForLess) {
  const Schedule schedule = lower(make_schedule("gpipe", 2, 2));
  Costs costs = Costs::uniform(2, 1, 1, 1);
  costs.message = {5};
  costs.transfer = {4};
  EXPECT_DOUBLE_EQ(simulate(schedule, costs).seconds, 24);
  costs.sizes = {1, 0.5};  // both ways
  EXPECT_DOUBLE_EQ(simulate(schedule, costs).seconds, 20);
  costs.bytes = {100};
  costs.eager_bytes = 50;  // the second message does not wait for the first
  EXPECT_DOUBLE_EQ(simulate(schedule, costs).seconds, 19);
  const ActionSeconds seconds{{1, 1, 2, 2, 0, 1, 1, 2, 2, 0}, {1, 1, 2, 2, 0, 1, 1, 2, 2, 0}};
  costs.bytes = {};
  costs.sizes = {};
  const double alike = replay_steps(schedule, costs, seconds, nothing_before(seconds), 2)->seconds;
  EXPECT_LT(replay_steps(schedule, costs, seconds, nothing_before(seconds), 2, {1, 0.5})->seconds, alike);
  EXPECT_DOUBLE_EQ(replay_steps(schedule, costs, seconds, nothing_before(seconds), 2, {1, 1})->seconds, alike);
}

// With the time of every single action: the second backward of rank 1 takes longer, and rank 0 waits for it.
TEST(Simulate, TakesTheTimeOfEachAction) {
  const Schedule schedule = lower(make_schedule("1f1b", 2, 2));  // 0F0 0F1 0B0 0B1; 1F0 1B0 1F1 1B1
  const Costs costs = Costs::uniform(2, 1, 1, 1);
  EXPECT_DOUBLE_EQ(simulate(schedule, costs, {{1, 1, 2, 2}, {1, 2, 1, 2}}).seconds, simulate(schedule, costs).seconds);
  const Simulation slow = simulate(schedule, costs, {{1, 1, 2, 2}, {1, 2, 1, 5}});
  EXPECT_DOUBLE_EQ(slow.seconds, 1 + 1 + 2 + 1 + 5 + 2);
  EXPECT_DOUBLE_EQ(slow.idle, 1 - (6.0 + 9) / (2 * 12));
  EXPECT_TRUE(fails_with<Error>({"one time per action"}, [&] { simulate(schedule, costs, {{1, 1}, {1, 1}}); }));
}

TEST(PeakBytes, WeighEachStage) {
  const Schedule schedule = lower(make_schedule("1f1b", 3, 6));
  EXPECT_EQ(peak_bytes(schedule, {10, 100, 1000}), (std::vector<double>{30, 200, 1000}));
}

}  // namespace
}  // namespace stagecoach
