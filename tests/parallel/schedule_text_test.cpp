// Schedules as tables of text, in and out.

#include <gtest/gtest.h>

#include "core/error.h"
#include "parallel/schedule/check.h"
#include "parallel/schedule/generators.h"
#include "parallel/schedule/text.h"
#include "tests/support/errors.h"

namespace stagecoach {
namespace {

using test::fails_with;

TEST(ScheduleText, ReadsWhatItWrites) {
  for (const std::string& name : schedule_names()) {
    const Schedule schedule = make_schedule(name, 4, 8);
    EXPECT_EQ(schedule_from_text(to_text(schedule), name), schedule) << name;
  }
  const Schedule chunked = make_schedule("interleaved", 4, 8, 3);
  EXPECT_EQ(schedule_from_text(to_text(chunked), "interleaved"), chunked);
}

// As torch.distributed.pipelining dumps it: empty cells for idle time, and line ends of Windows.
TEST(ScheduleText, IgnoresIdleCells) {
  const Schedule schedule = schedule_from_text("0F0,0F1,,,0B0,,0B1\r\n,1F0,1F1,1B0,,1B1,\r\n\n", "table.csv");
  EXPECT_EQ(to_text(schedule), "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n");
  EXPECT_TRUE(check(schedule).empty());
}

TEST(ScheduleText, NamesLineAndColumn) {
  const auto refused = [](const char* text, std::initializer_list<const char*> parts) {
    return fails_with<UsageError>(parts, [&] { schedule_from_text(text, "my.csv"); });
  };
  EXPECT_TRUE(refused("0F0,0B0\n1F0,oops", {"my.csv: line 2, column 5", "'oops'"}));
  EXPECT_TRUE(refused("0F0, 0X0", {"line 1, column 6", "'0X0'", "F (forward)"}));
  EXPECT_TRUE(refused("0F", {"line 1, column 1", "'0F'"}));
  EXPECT_TRUE(refused("F0", {"'F0'"}));
  EXPECT_TRUE(refused("-1F0", {"'-1F0'"}));
  EXPECT_TRUE(refused("0F-1", {"'0F-1'"}));
  EXPECT_TRUE(refused("0F1x", {"nothing may follow"}));
  EXPECT_TRUE(refused("0SEND_F1", {"'0SEND_F1'", "messages are added"}));
  EXPECT_TRUE(refused("0F99999999999", {"'0F99999999999'"}));
  EXPECT_TRUE(refused("99999999F0", {"stage 99999999"}));
  EXPECT_TRUE(refused("0F0,0B0\n0F1", {"line 2, column 1", "stage 0 is on rank 0 already"}));
  EXPECT_TRUE(refused("", {"no action"}));
  EXPECT_TRUE(refused(" , \n", {"no action"}));
}

}  // namespace
}  // namespace stagecoach
