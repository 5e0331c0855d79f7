// What `check` refuses, with the reason.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core/base/error.h"
#include "core/random.h"
#include "parallel/schedule/check.h"
#include "parallel/schedule/lower.h"
#include "parallel/schedule/schedule_kinds.h"
#include "parallel/schedule/simulate.h"
#include "parallel/schedule/text.h"
#include "tests/support/errors.h"

namespace stagecoach {
namespace {

using test::fails_with;

/// The first problem of a table, or "".
std::string problem(const std::string& table) {
  const auto problems = check(schedule_from_text(table, "here"));
  return problems.empty() ? "" : problems.front();
}

TEST(Check, AcceptsWhatIsWhole) {
  EXPECT_EQ(problem("0F0,0B0"), "");
  EXPECT_EQ(problem("0F0,0I0,0W0"), "");
  EXPECT_EQ(problem("0F0,0F1,0B1,0B0\n1F0,1F1,1B1,1B0"), "") << "backwards in another order";
}

TEST(Check, NamesWhatIsMissing) {
  EXPECT_EQ(problem("0F0\n1F0,1B0"), "0B0 is missing");
  EXPECT_EQ(problem("0F0\n1F0,1I0,1W0"), "0B0 is missing (or 0I0 and 0W0)");
  EXPECT_EQ(problem("0B0\n1F0,1B0"), "0F0 is missing");
  EXPECT_EQ(problem("0F0,0I0\n1F0,1B0"), "0W0 is missing");
  EXPECT_EQ(problem("0F0,0W0\n1F0,1B0"), "0I0 is missing");
  EXPECT_EQ(problem("0F0,0B0,0F2,0B2\n1F0,1B0,1F2,1B2"), "0F1 is missing") << "micro-batches are numbered without gaps";
  EXPECT_EQ(problem("0F0,0B0\n2F0,2B0"), "stage 1 is not assigned to a rank");
}

TEST(Check, NamesWhatIsThereTwice) {
  EXPECT_EQ(problem("0F0,0F0,0B0"), "rank 0: 0F0 is listed twice");
  EXPECT_EQ(problem("0F0,0B0,0I0,0W0"), "stage 0 runs micro-batch 0 backward more than once: B contains both I and W");
}

TEST(Check, NamesTheCircle) {
  // Rank 0 wants the gradient of micro-batch 1 before it has sent its forward.
  EXPECT_EQ(problem("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1"),
            "deadlock: rank 0 waits at 0B0 for 1B0 of rank 1; rank 1 waits at 1F1 for 0F1 of rank 0");
  EXPECT_EQ(problem("0B0,0F0"), "deadlock: rank 0 waits at 0B0 for 0F0 of the same rank, which runs it later");
  EXPECT_NE(problem("0F0,0W0,0I0").find("0W0 for 0I0 of the same rank"), std::string::npos);
}

TEST(Check, LeavesOutWhatOnlyLeadsToTheCircle) {
  const std::string context = problem("0F0,0B0\n1F0,1B0\n2B0,2F0");
  EXPECT_EQ(context, "deadlock: rank 2 waits at 2B0 for 2F0 of the same rank, which runs it later");
}

TEST(Check, RefusesWhatIsOutOfRange) {
  Schedule schedule = make_schedule("gpipe", 2, 2);
  schedule.ranks[0][0].microbatch = 7;
  EXPECT_NE(check(schedule).front().find("0F7 is out of range"), std::string::npos);
  schedule.ranks[0][0].microbatch = -1;  // which in a reduction stands for all micro-batches
  EXPECT_NE(check(schedule).front().find("0F-1 is out of range"), std::string::npos);
  schedule = make_schedule("gpipe", 2, 2);
  schedule.ranks[0].push_back({Operation::forward, 1, 0});
  EXPECT_EQ(check(schedule).front(), "rank 0: 1F0 belongs to rank 1, to which stage 1 is assigned");
  schedule.stage_to_rank[1] = 5;
  EXPECT_EQ(check(schedule).front(), "stage 1 is not assigned to a rank");
  EXPECT_FALSE(check(Schedule{}).empty());
}

TEST(Check, ListsAFewProblemsOnly) {
  Schedule schedule = make_schedule("gpipe", 4, 32);
  for (auto& actions : schedule.ranks) {
    actions.clear();
  }
  EXPECT_EQ(check(schedule).size(), kMaxProblems);
  EXPECT_TRUE(fails_with<UsageError>({"schedule mine cannot run", "0F0 is missing", "there may be more problems"},
                                     [&] { require_legal(schedule, "mine"); }));
  require_legal(make_schedule("gpipe", 4, 32), "gpipe");
}

// A thousand schedules that were broken at random: each is refused with a reason, or still runs to its end.
TEST(Check, RandomDamageIsRefusedWithAReason) {
  const Philox random(11, "damage");
  int refused = 0;
  std::uint64_t draw = 0;
  const auto below = [&](std::size_t bound) { return random.below(draw++, static_cast<std::uint32_t>(bound)); };
  for (int round = 0; round < 1000; ++round) {
    const std::string& name = schedule_names()[below(schedule_names().size())];
    Schedule schedule = make_schedule(name, 4, 8, find_schedule(name)->takes_chunks() ? 2 : 0);
    auto& actions = schedule.ranks[below(4)];
    const std::size_t at = below(actions.size());
    const std::uint32_t kind = below(3);
    if (kind == 0) {
      actions.erase(actions.begin() + static_cast<std::ptrdiff_t>(at));
    } else if (kind == 1) {
      std::swap(actions[at], actions[below(actions.size())]);
    } else {
      std::rotate(actions.begin(), actions.begin() + static_cast<std::ptrdiff_t>(at), actions.end());
    }
    const auto problems = check(schedule);
    if (problems.empty()) {
      EXPECT_NE(kind, 0U) << "a deleted action must be missed: " << to_text(schedule);
      const Simulation result = simulate(lower(schedule), Costs::uniform(schedule.stage_count(), 1, 1, 1));
      EXPECT_GT(result.seconds, 0) << "what is legal runs";
    } else {
      ++refused;
      EXPECT_FALSE(problems.front().empty());
    }
  }
  EXPECT_GT(refused, 600) << "most damage matters";
}

TEST(Check, FewerMicroBatchesOfALegalScheduleAreLegal) {
  for (const std::string& name : schedule_names()) {
    for (const int p : {1, 2, 4}) {
      const Schedule whole = make_schedule(name, p, 8, find_schedule(name)->takes_chunks() ? 2 : 0);
      for (int m = 1; m <= 8; ++m) {
        const Schedule fewer = with_fewer_microbatches(whole, m);
        EXPECT_EQ(fewer.microbatches, m);
        EXPECT_EQ(check(fewer), std::vector<std::string>{}) << name << ", " << p << " ranks, " << m;
        EXPECT_EQ(check(with_fewer_microbatches(with_reductions(lower(whole)), m)), std::vector<std::string>{})
            << name << " lowered, " << p << " ranks, " << m;
      }
      EXPECT_EQ(with_fewer_microbatches(whole, 8), whole);
    }
  }
  EXPECT_THROW(with_fewer_microbatches(make_schedule("gpipe", 2, 2), 3), Error);
  EXPECT_THROW(with_fewer_microbatches(make_schedule("gpipe", 2, 2), 0), Error);
}

TEST(Schedule, ForwardsAlone) {
  const Schedule forwards = forwards_of(make_schedule("1f1b", 2, 3));
  const std::vector<Action> wanted{{Operation::forward, 1, 0}, {Operation::forward, 1, 1}, {Operation::forward, 1, 2}};
  EXPECT_EQ(forwards.ranks[1], wanted);
}

}  // namespace
}  // namespace stagecoach
