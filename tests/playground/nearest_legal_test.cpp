// Schedules that cannot run are repaired with few changes.

#include "parallel/schedule/nearest_legal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "core/random.h"
#include "parallel/schedule/check.h"
#include "parallel/schedule/schedule_kinds.h"
#include "parallel/schedule/text.h"

namespace stagecoach {
namespace {

std::string repaired(const std::string& table) { return to_text(nearest_legal(schedule_from_text(table, "table"))); }

TEST(NearestLegal, OfALegalScheduleIsItself) {
  for (const std::string& name : schedule_names()) {
    const Schedule schedule = make_schedule(name, 4, 8);
    EXPECT_EQ(nearest_legal(schedule), schedule) << name;
  }
}

TEST(NearestLegal, OfADeadlockMovesOneAction) {
  EXPECT_EQ(repaired("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n"), "0F0,0F1,0B0,0B1\n1F1,1B1,1F0,1B0\n");
}

/// Returns how many actions `text` would need to move to become a table that the order of `legal` has: all except a
/// longest common subsequence of each rank.
int moves_between(const Schedule& schedule, const Schedule& legal) {
  int moves = 0;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    const auto& [a, b] = std::tie(schedule.ranks[rank], legal.ranks[rank]);
    std::vector<std::vector<int>> common(a.size() + 1, std::vector<int>(b.size() + 1));
    for (std::size_t i = 0; i < a.size(); ++i) {
      for (std::size_t j = 0; j < b.size(); ++j) {
        common[i + 1][j + 1] = a[i] == b[j] ? common[i][j] + 1 : std::max(common[i][j + 1], common[i + 1][j]);
      }
    }
    moves += static_cast<int>(a.size()) - common[a.size()][b.size()];
  }
  return moves;
}

TEST(NearestLegal, OfOneMisplacedActionMovesOneAction) {
  const Philox random(52);
  std::uint64_t drawn = 0;
  const auto draw = [&](std::size_t end) {
    return static_cast<std::size_t>(random.uniform(drawn++) * static_cast<double>(end));
  };
  int deadlocks = 0;
  for (int run = 0; run < 400; ++run) {
    const auto& names = schedule_names();
    Schedule schedule = make_schedule(names[static_cast<std::size_t>(run) % names.size()], 4, 8);
    auto& actions = schedule.ranks[draw(schedule.ranks.size())];
    const auto at = [&](std::size_t i) { return actions.begin() + static_cast<std::ptrdiff_t>(i); };
    const std::size_t from = draw(actions.size());
    const std::size_t to = draw(actions.size());
    std::rotate(at(std::min(from, to)), at(from < to ? from + 1 : from), at(std::max(from, to)) + 1);
    const Schedule legal = nearest_legal(schedule);
    ASSERT_EQ(check(legal), std::vector<std::string>{});
    const bool is_legal = check(schedule).empty();
    deadlocks += is_legal ? 0 : 1;
    EXPECT_EQ(moves_between(schedule, legal), is_legal ? 0 : 1) << to_text(schedule) << "became\n" << to_text(legal);
  }
  EXPECT_GT(deadlocks, 100);
}

TEST(NearestLegal, OfALargeScheduleIsLegal) {
  Schedule schedule = make_schedule("1f1b", 32, 128);
  std::rotate(schedule.ranks[31].begin(), schedule.ranks[31].begin() + 200, schedule.ranks[31].end());
  EXPECT_EQ(check(nearest_legal(schedule)), std::vector<std::string>{});
}

TEST(NearestLegal, OfAnIncompleteTableIsComplete) {
  EXPECT_EQ(repaired("0F0,0F0,0B0\n1F0,1F1,1I1\n"), "0F0,0F1,0B0,0B1\n1F0,1F1,1I1,1B0,1W1\n");
}

TEST(NearestLegal, OfAnyOrderIsLegal) {
  const Philox random(52);
  std::uint64_t drawn = 0;
  for (int run = 0; run < 200; ++run) {
    const auto& names = schedule_names();
    Schedule schedule = make_schedule(names[static_cast<std::size_t>(run) % names.size()], 3, 6);
    for (int change = 0; change < 5; ++change) {
      auto& actions = schedule.ranks[static_cast<std::size_t>(change) % schedule.ranks.size()];
      const auto place = [&] {
        return static_cast<std::size_t>(random.uniform(drawn++) * static_cast<double>(actions.size()));
      };
      actions[place()] = actions[place()];  // one is listed twice, and one is missing
    }
    EXPECT_EQ(check(nearest_legal(schedule)), std::vector<std::string>{});
  }
}

}  // namespace
}  // namespace stagecoach
