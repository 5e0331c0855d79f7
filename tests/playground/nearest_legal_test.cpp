// Schedules that cannot run are repaired with few changes.

#include "parallel/schedule/nearest_legal.h"

#include <gtest/gtest.h>

#include <string>

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
