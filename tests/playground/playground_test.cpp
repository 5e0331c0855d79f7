// The C interface of the playground.

#include "parallel/playground/playground.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace stagecoach {
namespace {

template <class Number>
std::vector<Number> array(PlaygroundArray which) {
  const auto* const begin = static_cast<const Number*>(playground_array(which));
  return {begin, begin + playground_length(which)};
}

/// Sets the costs of 1F1B on 2 ranks: a forward and half a backward take 1.
void set_unit_costs(int stages) {
  std::fill_n(playground_costs(), 4 * stages, 1);
  std::fill_n(playground_costs() + stages, stages, 2);
}

TEST(Playground, TimesASchedule) {
  ASSERT_EQ(playground_make("1f1b", 2, 3, 0, 0), 1);
  set_unit_costs(2);
  ASSERT_EQ(playground_simulate(4, 0, 0), 2);
  EXPECT_EQ(array<double>(PLAYGROUND_FIGURES)[0], (3 + 1) * 3);
  EXPECT_EQ(array<std::int32_t>(PLAYGROUND_RANKS)[0], 2);
  ASSERT_EQ(playground_explain(), 1);
  EXPECT_EQ(array<double>(PLAYGROUND_EXPLANATION)[0], 3 * 3);
  EXPECT_EQ(playground_idle(1), 0.5);
}

TEST(Playground, TimesABackwardThatIsNotSplitByItself) {
  ASSERT_EQ(playground_make("1f1b", 2, 3, 0, 0), 1);
  set_unit_costs(2);
  std::fill_n(playground_costs() + 2, 2, 1.5);
  ASSERT_EQ(playground_simulate(4, 0, 0), 2);
  EXPECT_EQ(array<double>(PLAYGROUND_FIGURES)[0], (3 + 1) * 2.5);
}

TEST(Playground, RunsADeadlockUpToItsCircle) {
  ASSERT_EQ(playground_read("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n"), 1);
  set_unit_costs(2);
  ASSERT_EQ(playground_simulate(4, 0, 0), 1);
  EXPECT_EQ(std::string(playground_text(PLAYGROUND_MESSAGE)).substr(0, 9), "deadlock:");
  const auto ranks = array<std::int32_t>(PLAYGROUND_RANKS);
  const auto actions = array<std::int32_t>(PLAYGROUND_ACTIONS);
  const auto times = array<double>(PLAYGROUND_TIMES);
  const auto stuck = static_cast<std::size_t>(ranks[3]);
  EXPECT_EQ(actions[4 * stuck], 1) << "rank 0 is stuck at its first backward";
  EXPECT_TRUE(std::isnan(times[3 * stuck]));
  EXPECT_EQ(array<double>(PLAYGROUND_FIGURES)[0], 1) << "its first forward has run";
  ASSERT_EQ(playground_repair(), 1);
  EXPECT_STREQ(playground_text(PLAYGROUND_TABLE), "0F0,0F1,0B0,0B1\n1F1,1B1,1F0,1B0\n");
}

TEST(Playground, SaysWhatItCannotDo) {
  EXPECT_EQ(playground_make("gpipe", 2, 3, 2, 0), 0);
  EXPECT_NE(std::string(playground_text(PLAYGROUND_MESSAGE)), "");
  EXPECT_EQ(playground_read("0F0,0X0"), 0);
  EXPECT_NE(std::string(playground_text(PLAYGROUND_MESSAGE)).find("0X0"), std::string::npos);
}

TEST(Playground, KnowsTheVersionsOfPipedream) {
  ASSERT_EQ(playground_make_pipedream(3, 6, 1, 0), 1);
  set_unit_costs(3);
  ASSERT_EQ(playground_simulate(4, 0, 0), 2);
  const auto ranks = array<std::int32_t>(PLAYGROUND_RANKS);
  EXPECT_EQ(ranks[1], 3) << "versions on rank 0";
  EXPECT_EQ(ranks[2], 2) << "updates by which its gradients are late";
  EXPECT_TRUE(std::isnan(playground_idle(1))) << "only of schedules that playground_make made";
}

}  // namespace
}  // namespace stagecoach
