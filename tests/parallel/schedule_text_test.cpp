// Schedules as tables of text, in and out.

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "parallel/schedule/check.h"
#include "parallel/schedule/lower.h"
#include "parallel/schedule/schedule_kinds.h"
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

// DualPipeV of torch.distributed.pipelining, 2 ranks and 4 micro-batches: pairs that it overlaps run one after the
// other.
TEST(ScheduleText, ReadsOverlappedPairsInOrder) {
  const Schedule schedule = schedule_from_text(
      "0F0,0F1,0F2,3F0,3I0,3W0,3F1,(0F3;3B1)OVERLAP_F_B,(3F2;0B0)OVERLAP_F_B,3B2,(3F3;0B1)OVERLAP_F_B,3B3,0I2,0W2,0I3,"
      "0W3\r\n"
      "1F0,2F0,1F1,2F1,1F2,2B0,(2F2;1B0)OVERLAP_F_B,(1F3;2B1)OVERLAP_F_B,(2F3;1B1)OVERLAP_F_B,2B2,1B2,2I3,1I3,2W3,1W3"
      "\r\n",
      "dual.csv");
  EXPECT_TRUE(check(schedule).empty());
  EXPECT_EQ(schedule.stage_to_rank, (std::vector{0, 1, 1, 0}));
  EXPECT_EQ(to_text(schedule),
            "0F0,0F1,0F2,3F0,3I0,3W0,3F1,0F3,3B1,3F2,0B0,3B2,3F3,0B1,3B3,0I2,0W2,0I3,0W3\n"
            "1F0,2F0,1F1,2F1,1F2,2B0,2F2,1B0,1F3,2B1,2F3,1B1,2B2,1B2,2I3,1I3,2W3,1W3\n");
}

TEST(ScheduleText, ReadsCommunication) {
  int left_out = -1;
  const Schedule schedule = schedule_from_text(
      "0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD,0RESHARD\n"
      "1UNSHARD,1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,1REDUCE_GRAD,1RESHARD\n",
      "comms.csv", &left_out);
  EXPECT_TRUE(schedule.is_lowered);
  EXPECT_EQ(to_text(schedule),
            "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD\n"
            "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,1REDUCE_GRAD\n");
  EXPECT_EQ(left_out, 4) << "UNSHARD and RESHARD";
  EXPECT_EQ(check(schedule), std::vector<std::string>{});
  EXPECT_EQ(schedule_from_text(to_text(schedule), "table", &left_out), schedule);
  EXPECT_EQ(left_out, 0);
}

// Without messages there is nothing that a reduction could come after in the right order: lower() makes them.
TEST(ScheduleText, LeavesReductionsOutWhereNoMessagesAreListed) {
  int left_out = -1;
  const Schedule schedule = schedule_from_text("0F0,0B0,0REDUCE_GRAD\n1F0,1B0,1REDUCE_GRAD\n", "table", &left_out);
  EXPECT_FALSE(schedule.is_lowered);
  EXPECT_EQ(to_text(schedule), "0F0,0B0\n1F0,1B0\n");
  EXPECT_EQ(left_out, 2);
}

TEST(ScheduleText, RoundTripsEveryLoweredSchedule) {
  for (const std::string& name : schedule_names()) {
    const int chunks = find_schedule(name)->max_chunks > 1 ? 2 : 1;
    const Schedule schedule = with_reductions(lower(make_schedule(name, 4, 8, chunks)));
    EXPECT_EQ(schedule_from_text(to_text(schedule), name), schedule) << name;
  }
}

TEST(ScheduleText, AByteOrderMarkIsNoPartOfTheTable) {
  EXPECT_EQ(to_text(schedule_from_text("\xEF\xBB\xBF"
                                       "0F0,0B0\n",
                                       "table")),
            "0F0,0B0\n");
  EXPECT_TRUE(fails_with<UsageError>({"line 1, column 5"}, [] {
    schedule_from_text(
        "\xEF\xBB\xBF"
        "0F0,oops",
        "my.csv");
  }));
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
  EXPECT_TRUE(refused("0F1x", {"expected nothing after"}));
  EXPECT_TRUE(refused("0SEND_G1", {"'0SEND_G1'", "expected F (forward)", "SEND_F"}));
  EXPECT_TRUE(refused("0F0,(0F1;1B0)TOGETHER", {"line 1, column 5", "(0F1;1B0)TOGETHER", "OVERLAP_F_B"}));
  EXPECT_TRUE(refused("(0F0;oops)OVERLAP_F_B", {"'oops'"}));
  EXPECT_TRUE(refused("()OVERLAP_F_B", {"''"}));
  EXPECT_TRUE(refused("(", {"'('"}));
  EXPECT_TRUE(refused("0UNSHARD,0SEND_F0", {"no computation"}));
  EXPECT_TRUE(refused("0F99999999999", {"'0F99999999999'"}));
  EXPECT_TRUE(refused("99999999F0", {"a stage below 1", "got 99999999"}));
  EXPECT_TRUE(refused("0F0,0B0\n0F1", {"line 2, column 1", "stage 0 is already on rank 0"}));
  EXPECT_TRUE(refused("", {"no computation"}));
  EXPECT_TRUE(refused(" , \n", {"no computation"}));
}

}  // namespace
}  // namespace stagecoach
