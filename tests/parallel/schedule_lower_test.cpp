// What lowering adds to a table, and what check says of a lowered one.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "parallel/schedule/check.h"
#include "parallel/schedule/lower.h"
#include "parallel/schedule/pipedream.h"
#include "parallel/schedule/schedule_kinds.h"
#include "parallel/schedule/simulate.h"
#include "parallel/schedule/text.h"
#include "parallel/schedule/traffic.h"
#include "tests/support/errors.h"

namespace stagecoach {
namespace {

using test::fails_with;

std::string lowering_problem(const std::string& table) {
  const auto problems = check(schedule_from_text(table, "table"));
  return problems.empty() ? "" : problems.front();
}

TEST(Lower, PostsReceivesAtTheirUse) {
  EXPECT_EQ(to_text(lower(make_schedule("1f1b", 2, 2), {.receives = 0})),
            "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
            "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n");
}

TEST(Lower, PostsTheNextReceiveWhenOneIsUsed) {
  EXPECT_EQ(to_text(lower(make_schedule("1f1b", 2, 2), {.receives = 1})),
            "0RECV_B0,0F0,0SEND_F0,0F1,0SEND_F1,0B0,0RECV_B1,0B1\n"
            "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n");
}

TEST(Lower, NeverPostsMoreReceivesThanItMay) {
  for (const std::string& name : schedule_names()) {
    const int chunks = find_schedule(name)->max_chunks > 1 ? 2 : 1;
    const Schedule computations = make_schedule(name, 4, 8, chunks);
    const auto at_use = peak_receives(lower(computations, {.receives = 0}));
    // In a V a message may be sent before one that is used earlier, and so must be posted before it.
    const int in_between = *std::max_element(at_use.begin(), at_use.end()) - 1;
    EXPECT_EQ(in_between, find_schedule(name)->is_v_shaped ? 1 : 0) << name;
    for (const int receives : {1, 2, 4, 8}) {
      const Schedule schedule = lower(computations, {.receives = receives});
      EXPECT_EQ(check(schedule), std::vector<std::string>{}) << name;
      for (const int peak : peak_receives(schedule)) {
        EXPECT_LE(peak, receives + in_between) << name;
      }
    }
  }
}

// Two ranks send to each other in both directions of the pipeline, so their messages are of different kinds; they are
// received in the order in which they are sent, not in that in which they are used.
TEST(Lower, PostsReceivesInTheOrderOfTheSends) {
  const Schedule schedule = schedule_from_text(
      "0F0,2F0,0F1,2F1,2B0,0B0,2B1,0B1\n"
      "1F0,1F1,3F0,3B0,3F1,3B1,1B0,1B1\n",
      "table");
  for (const int receives : {0, 1, 2, 100}) {
    EXPECT_EQ(check(lower(schedule, {.receives = receives})), std::vector<std::string>{}) << receives;
  }
}

TEST(Lower, LeavesStagesOfOneRankWithoutMessages) {
  EXPECT_EQ(to_text(lower(schedule_from_text("0F0,1F0,1B0,0B0", "table"))), "0F0,1F0,1B0,0B0\n");
}

TEST(Lower, SumsTheGradientsOfEachStageAfterItsLastWeightGradient) {
  const Schedule chunked = with_reductions(lower(make_schedule("foldx_aiao", 2, 1, 2), {.receives = 0}));
  EXPECT_EQ(to_text(chunked),
            "0F0,0SEND_F0,2RECV_F0,2F0,2SEND_F0,2RECV_B0,2B0,2SEND_B0,2REDUCE_GRAD,0RECV_B0,0B0,0REDUCE_GRAD\n"
            "1RECV_F0,1F0,1SEND_F0,3RECV_F0,3F0,3B0,3SEND_B0,3REDUCE_GRAD,1RECV_B0,1B0,1SEND_B0,1REDUCE_GRAD\n");
  EXPECT_EQ(check(chunked), std::vector<std::string>{});
  EXPECT_EQ(with_reductions(chunked), chunked) << "once is enough";
}

// A table from a file can say itself when it sums.
TEST(Lower, ReductionsThatAreListedStayInTheirPlace) {
  const std::string table =
      "0F0,0SEND_F0,2RECV_F0,2F0,2SEND_F0,2RECV_B0,2B0,2SEND_B0,0RECV_B0,0B0,0REDUCE_GRAD,2REDUCE_GRAD\n"
      "1RECV_F0,1F0,1SEND_F0,3RECV_F0,3F0,3B0,3SEND_B0,1RECV_B0,1B0,1SEND_B0,3REDUCE_GRAD";
  const Schedule schedule = with_reductions(schedule_from_text(table, "table"));
  EXPECT_EQ(to_text(schedule), table.substr(0, table.rfind("3REDUCE")) + "1REDUCE_GRAD,3REDUCE_GRAD\n");
  EXPECT_EQ(check(schedule), std::vector<std::string>{});
}

TEST(Lower, SumsTheGradientsOfReplicasBeforeEachUpdate) {
  const Schedule schedule = lower(pipedream_schedule({2, 1}, 2, 1, Versions::stash), {.receives = 0});
  EXPECT_EQ(schedule.ranks[0].at(4), (Action{Operation::reduce_grad, 0, 0}));
  EXPECT_EQ(schedule.ranks[0].at(5), (Action{Operation::update, 0, 0}));
  EXPECT_EQ(check(schedule), std::vector<std::string>{});
}

TEST(Lower, TakesTheComputationsBackOut) {
  for (const std::string& name : schedule_names()) {
    const int chunks = find_schedule(name)->max_chunks > 1 ? 2 : 1;
    const Schedule computations = make_schedule(name, 3, 6, chunks);
    EXPECT_EQ(computations_of(with_reductions(lower(computations))), computations) << name;
  }
}

TEST(Lower, NeedsComputationsThatAGeneratorTakes) {
  for (const int p : {-1, 0}) {
    EXPECT_TRUE(fails_with<UsageError>({"at least 1"}, [&] { make_schedule("interleaved", p, 4, 2); }));
    EXPECT_TRUE(fails_with<UsageError>({"at least 1"}, [&] { make_schedule("interleaved-zb", p, 4, 2); }));
  }
}

TEST(Lower, ReadsHowManyReceivesMayBePosted) {
  EXPECT_EQ(receives_from_text("at-use"), 0);
  EXPECT_EQ(receives_from_text("ahead"), kDefaultReceives);
  EXPECT_EQ(receives_from_text("7"), 7);
  for (const char* text : {"", "0", "-1", "1.5", "7 ", "soon", "99999999999"}) {
    EXPECT_TRUE(fails_with<UsageError>({"expected at-use, ahead or a number"}, [&] { receives_from_text(text); }));
  }
  EXPECT_THROW(lower(lower(make_schedule("gpipe", 2, 2))), Error);
}

TEST(LoweredCheck, NamesWhatIsWrongWithMessages) {
  EXPECT_EQ(lowering_problem("0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0"), "0SEND_F0 is missing");
  EXPECT_EQ(lowering_problem("0F0,0SEND_F0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0"), "0RECV_B0 is missing");
  EXPECT_EQ(lowering_problem("0F0,0SEND_F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0"),
            "rank 0: 0SEND_F0 is listed twice");
  EXPECT_EQ(lowering_problem("0F0,0SEND_F0,0RECV_B0,0B0,0SEND_B0\n1RECV_F0,1F0,1B0,1SEND_B0"),
            "rank 0: 0SEND_B0 has no other rank at the other end");
  EXPECT_EQ(lowering_problem("0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1RECV_F0,1B0,1SEND_B0"),
            "deadlock: rank 1 waits at 1F0 for 1RECV_F0 of the same rank, which runs it later");
  EXPECT_EQ(lowering_problem("0SEND_F0,0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0"),
            "deadlock: rank 0 waits at 0SEND_F0 for 0F0 of the same rank, which runs it later");
  EXPECT_EQ(lowering_problem("0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
                             "1RECV_F1,1RECV_F0,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1"),
            "rank 1 posts 1RECV_F1 where rank 0 sends 0SEND_F0: a rank must post its receives from another "
            "rank in the order of that rank's sends");
}

TEST(LoweredCheck, NamesWhatIsWrongWithReductions) {
  EXPECT_EQ(lowering_problem("0F0,0SEND_F0,0RECV_B0,0REDUCE_GRAD,0B0\n1RECV_F0,1F0,1B0,1SEND_B0"),
            "deadlock: rank 0 waits at 0REDUCE_GRAD for 0B0 of the same rank, which runs it later");
  EXPECT_EQ(lowering_problem("0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0REDUCE_GRAD\n1RECV_F0,1F0,1B0,1SEND_B0"),
            "rank 0: 0REDUCE_GRAD comes after 1 reductions of the same stage");
  Schedule stream = lower(pipedream_schedule({2, 1}, 2, 1, Versions::stash));
  std::erase_if(stream.ranks[0], [](const Action& action) { return action.operation == Operation::reduce_grad; });
  EXPECT_EQ(check(stream).front(), "rank 0: 0U0 comes before 0REDUCE_GRAD0");
}

// Each rank sends before it posts a receive: no harm, unless a send waits until its receive is posted.
TEST(LoweredCheck, SaysWhatDeadlocksOnlyBecauseSendsWait) {
  Schedule schedule = schedule_from_text(
      "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
      "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n",
      "table");
  EXPECT_EQ(check(schedule), std::vector<std::string>{});
  schedule.sends_wait = true;
  EXPECT_EQ(check(schedule), std::vector<std::string>{
                                 "deadlock, because sends wait for their receivers: rank 0 waits at "
                                 "0SEND_F1 for 1RECV_F1 of rank 1; rank 1 waits at 1SEND_B0 for 0RECV_B0 of rank 0"});
}

TEST(LoweredCheck, AcceptsEverySchedule) {
  for (const std::string& name : schedule_names()) {
    const int chunks = find_schedule(name)->max_chunks > 1 ? 2 : 1;
    for (const int p : {1, 2, 3, 8}) {
      for (const int receives : {0, 1, kDefaultReceives, 1000}) {
        const Schedule schedule = lower(make_schedule(name, p, 24, chunks), {.receives = receives});
        EXPECT_EQ(check(schedule), std::vector<std::string>{}) << name << ", " << p << " ranks, " << receives;
        EXPECT_EQ(check(with_reductions(schedule)), std::vector<std::string>{}) << name;
      }
    }
  }
}

// Ranks of the interleaved order send to each other in circles.
TEST(LoweredCheck, AcceptsSendsThatWait) {
  for (int p = 2; p <= 6; ++p) {
    for (const int v : {1, 2, 3}) {
      for (const int m : {p, 2 * p, 3 * p}) {
        for (const int receives : {1, kDefaultReceives}) {
          const Schedule computations = make_schedule("interleaved", p, m, v);
          const Schedule waiting = lower(computations, {.receives = receives, .sends_wait = true});
          EXPECT_EQ(check(waiting), std::vector<std::string>{}) << p << " ranks, " << m << ", " << v << " chunks";
          for (int fewer = p; fewer < m; ++fewer) {
            EXPECT_EQ(check(with_fewer_microbatches(waiting, fewer)), std::vector<std::string>{}) << fewer;
          }
          const Costs costs = Costs::uniform(p * v, 1, 1, 1);
          EXPECT_DOUBLE_EQ(simulate(waiting, costs).seconds, simulate(lower(computations), costs).seconds)
              << "where messages take no time, nobody waits for longer";
        }
      }
    }
  }
  EXPECT_TRUE(check(lower(make_schedule("interleaved", 2, 4, 2), {.receives = 0, .sends_wait = true}))
                  .front()
                  .starts_with("deadlock, because sends wait"));
}

TEST(Traffic, CountsMessagesAndBytes) {
  const Schedule schedule = lower(make_schedule("interleaved", 2, 4, 2), {.receives = 2});
  const auto links = link_traffic(schedule, {1, 10, 100});
  ASSERT_EQ(links.size(), 2U);
  EXPECT_EQ(links[0].from, 0);
  EXPECT_EQ(links[0].to, 1);
  EXPECT_EQ(links[0].messages, 4 * 3) << "forward from stages 0 and 2, backward from stage 2";
  EXPECT_EQ(links[0].bytes, 4 * (1 + 100 + 10));
  EXPECT_EQ(links[1].messages, 4 * 3);
  EXPECT_EQ(links[1].bytes, 4 * (10 + 100 + 1));
  EXPECT_EQ(peak_receives(schedule), (std::vector{2, 2}));
  const auto sums = reduction_traffic(with_reductions(schedule), {1, 10, 100, 1000});
  ASSERT_EQ(sums.size(), 2U);
  EXPECT_EQ(sums[1].reductions, 2);
  EXPECT_EQ(sums[1].bytes, 10 + 1000);
}

// A receive that is posted late delays a long message: the link is idle until then.
TEST(SimulateMessages, StartWhenTheirReceiveIsPosted) {
  Costs costs = Costs::uniform(2, 1, 1, 1);
  costs.message[0] = 1;
  costs.transfer = {1};
  const auto seconds = [&](int receives) {
    return simulate(lower(make_schedule("1f1b", 2, 2), {.receives = receives}), costs).seconds;
  };
  // At its use, rank 1 posts for the second micro-batch only after the backward of the first, at 5.
  EXPECT_DOUBLE_EQ(seconds(0), 2 + 1 + 2 + 1 + 1 + 2 + 1 + 2);
  EXPECT_DOUBLE_EQ(seconds(1), 2 + 1 + 2 + 1 + 2 + 1 + 2);
  costs.bytes = {1};
  costs.eager_bytes = 1;
  EXPECT_DOUBLE_EQ(seconds(0), seconds(1)) << "a short message does not wait";
}

TEST(SimulateMessages, KeepTheSenderWaitingWhereSendsWait) {
  Costs costs = Costs::uniform(2, 1, 1, 1);
  costs.message[0] = 1;
  const Schedule schedule = lower(make_schedule("gpipe", 2, 4));
  Schedule waiting = schedule;
  waiting.sends_wait = true;
  ASSERT_EQ(check(waiting), std::vector<std::string>{});
  EXPECT_DOUBLE_EQ(simulate(schedule, costs).seconds, 1 + 1 + 4 + 8 + 1 + 2);
  // Rank 0 needs 2 per forward, rank 1 then 3 per backward, as each waits for its own message.
  EXPECT_DOUBLE_EQ(simulate(waiting, costs).seconds, 4 * 2 + 1 + 4 * 3 + 2);
}

TEST(SimulateReductions, TravelBesideTheOtherWorkOfAStep) {
  Costs costs = Costs::uniform(4, 1, 1, 1);
  costs.average = {3, 3, 3, 3};
  const Schedule schedule = lower(make_schedule("foldx_aiao", 2, 4, 2));
  const double alone = simulate(schedule, costs).seconds;
  // The upper chunk's sum overlaps the backwards of the lower one, whose own sum ends the step.
  EXPECT_DOUBLE_EQ(simulate(with_reductions(schedule), costs).seconds, alone + 3);
}

}  // namespace
}  // namespace stagecoach
