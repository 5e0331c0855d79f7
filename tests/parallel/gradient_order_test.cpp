// In which order gradients are added, and what waits for it.

#include "parallel/schedule/gradient_order.h"

#include <gtest/gtest.h>

#include "parallel/schedule/schedule_kinds.h"
#include "parallel/schedule/text.h"

namespace stagecoach {
namespace {

Schedule table(const char* text) { return schedule_from_text(text, "table"); }

TEST(GradientOrder, IsThatOfTheMicroBatches) {
  const Schedule schedule = table("0F0,0F1,0F2,1F0,1F1,1F2,1B2,1B0,1B1,0I2,0I0,0I1,0W1,0W0,0W2\n");
  EXPECT_EQ(gradient_order(schedule.ranks[0], 0), (std::vector{0, 1, 2}));
  EXPECT_EQ(gradient_order(schedule.ranks[0], 1), (std::vector{0, 1, 2}));
  EXPECT_TRUE(gradient_order(schedule.ranks[0], 2).empty());
}

TEST(GradientOrder, NothingWaitsInOurSchedules) {
  for (const std::string& name : schedule_names()) {
    const Schedule schedule = make_schedule(name, 4, 8);
    EXPECT_EQ(peak_waiting_gradients(schedule), (std::vector{0, 0, 0, 0})) << name;
    EXPECT_TRUE(notes_on_order(schedule).empty()) << name;
  }
  EXPECT_TRUE(notes_on_order(make_schedule("interleaved", 4, 8, 3)).empty());
  EXPECT_TRUE(notes_on_order(make_schedule("foldx_aiao", 4, 8, 3)).empty());
  EXPECT_TRUE(notes_on_order(make_schedule("interleaved-zb", 4, 8, 3)).empty());
}

TEST(GradientOrder, AllButOneWaitWhereBackwardsDescend) {
  const Schedule schedule = table("0F0,0F1,0F2,0B2,0B1,0B0\n1F0,1F1,1F2,1B0,1B1,1B2\n");
  EXPECT_EQ(peak_waiting_gradients(schedule), (std::vector{2, 0}));
  EXPECT_EQ(peak_waiting_bytes(schedule, {10, 100}), (std::vector<double>{20, 0}));
  const auto notes = notes_on_order(schedule);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_NE(notes[0].find("at most 2, 0 sets"), std::string::npos) << notes[0];
}

// Stage 1's are all added when those of stage 0 begin to wait.
TEST(GradientOrder, CountsTheStagesOfARankTogether) {
  const Schedule schedule = table("0F0,0F1,0F2,1F0,1F1,1F2,1B2,1B1,1B0,0B1,0B0,0B2\n");
  EXPECT_EQ(peak_waiting_gradients(schedule), (std::vector{2}));
  EXPECT_EQ(peak_waiting_bytes(schedule, {10, 1}), (std::vector<double>{10}));
}

TEST(GradientOrder, ForwardsOutOfOrderAreNoted) {
  const auto notes = notes_on_order(table("0F0,0F2,0F1,0B0,0B1,0B2\n1F0,1F2,1F1,1B0,1B1,1B2\n"));
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_NE(notes[0].find("Rank 0 runs 0F1 after a later micro-batch"), std::string::npos) << notes[0];
  EXPECT_NE(notes[0].find("batch norm"), std::string::npos) << notes[0];
}

}  // namespace
}  // namespace stagecoach
