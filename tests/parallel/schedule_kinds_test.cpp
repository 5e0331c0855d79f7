// The rows of the schedules: what they claim is what the simulation gives, and what the papers give.

#include "parallel/schedule/schedule_kinds.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "parallel/schedule/check.h"
#include "parallel/schedule/lower.h"
#include "parallel/schedule/simulate.h"
#include "tests/parallel/legal_schedule.h"
#include "tests/support/errors.h"
#include "tests/support/sanitized.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::schedule_if_legal;
using test::unless_sanitized;

Simulation simulated_kind(const Schedule& schedule, const PassTimes& times = {}) {
  const double chunks = static_cast<double>(schedule.stage_count()) / schedule.rank_count();
  return simulate(lower(schedule), Costs::uniform(schedule.stage_count(), times.forward / chunks,
                                                  times.backward_input / chunks, times.backward_weight / chunks));
}
Simulation simulated_kind(const std::string& name, int p, int m, int v = 0) {
  return simulated_kind(make_schedule(name, p, m, v));
}

/// The longest time that a rank is idle between its own first and last action.
double max_idle_in_span(const Simulation& simulation) {
  double most = 0;
  for (std::size_t r = 0; r < simulation.span.size(); ++r) {
    most = std::max(most, simulation.span[r] - simulation.busy[r]);
  }
  return most;
}

const int kMostMicrobatches = test::kSanitized ? 8 : 24;

/// Calls see(row, sizes, schedule) for every legal case of 1 to 8 ranks, 1 to kMostMicrobatches, 1 to 4 chunks.
template <class See>
void for_each_case(const See& see) {
  for (const ScheduleKind& kind : schedule_kinds()) {
    for (int v = kind.min_chunks; v <= std::min(kind.max_chunks, 4); ++v) {
      for (int p = 1; p <= 8; ++p) {
        for (int m = 1; m <= kMostMicrobatches; ++m) {
          if (const auto schedule = schedule_if_legal(kind.name, p, m, v)) {
            SCOPED_TRACE(fmt::format("{}: p = {}, m = {}, v = {}", kind.name, p, m, v));
            see(kind, ScheduleSizes{p, m, v}, *schedule);
          }
        }
      }
    }
  }
}

TEST(ScheduleKinds, AreLegalWithTheirPeaks) {
  int cases = 0;
  for_each_case([&](const ScheduleKind& kind, const ScheduleSizes& sizes, const Schedule& schedule) {
    ASSERT_EQ(check(schedule), std::vector<std::string>{});
    ++cases;
    const auto peaks = peak_activations(schedule);
    for (int r = 0; r < sizes.ranks; ++r) {
      ASSERT_EQ(peaks[static_cast<std::size_t>(r)], kind.peak_activations(sizes, r)) << "rank " << r;
    }
  });
  EXPECT_GT(cases, unless_sanitized(3300, 300));
}

TEST(ScheduleKinds, AreIdleForAsLongAsTheirFormulasSay) {
  int held = 0;
  int without = 0;
  const std::vector<PassTimes> all_times{{1, 1, 1}, {1, 1, 0.7}, {1, 1.4, 0.9}, {1.3, 1, 1}, {1, 3, 1}};
  for_each_case([&](const ScheduleKind& kind, const ScheduleSizes& sizes, const Schedule& schedule) {
    for (const PassTimes& times : all_times) {
      if (const auto idle = kind.idle(sizes, times)) {
        ++held;
        const double seconds = simulated_kind(schedule, times).seconds;
        ASSERT_NEAR(*idle, seconds - sizes.microbatches * times.total(), 1e-9) << times.forward;
      } else {
        ++without;
      }
    }
  });
  EXPECT_GT(held, unless_sanitized(13'600, 600));
  EXPECT_LT(without, 3'200);
}

TEST(ScheduleKinds, GiveTheIdleShareOfAStep) {
  int held = 0;
  for_each_case([&](const ScheduleKind& kind, const ScheduleSizes& sizes, const Schedule& schedule) {
    const auto formula = idle_formula(kind.name, sizes.ranks, sizes.microbatches, sizes.chunks);
    if (formula->share) {
      ++held;
      ASSERT_NEAR(*formula->share, simulated_kind(schedule).idle, 1e-12);
    }
  });
  EXPECT_GT(held, unless_sanitized(2'900, 200));
}

// The texts of the formulas, in numbers.
TEST(ScheduleKinds, HaveTheFormulasOfThePapers) {
  const auto share = [](const char* name, int v = 0) { return idle_formula(name, 4, 16, v)->share.value(); };
  EXPECT_DOUBLE_EQ(share("naive"), 3.0 / 4);
  EXPECT_DOUBLE_EQ(share("gpipe"), 3.0 / (16 + 3));
  EXPECT_DOUBLE_EQ(share("1f1b"), 3.0 / (16 + 3));
  EXPECT_DOUBLE_EQ(share("interleaved", 2), 3.0 / (2 * 16 + 3));
  EXPECT_DOUBLE_EQ(share("foldx_aiao", 2), 3.0 / (2 * 16 + 3));
  EXPECT_DOUBLE_EQ(share("interleaved-sync", 3), 3.0 / (3 * 16 + 3));
  EXPECT_DOUBLE_EQ(share("zb-h1"), 3.0 / (3 * 16 + 3));
  EXPECT_DOUBLE_EQ(share("zb-h2"), 3.0 / (3 * 16 + 3));
  EXPECT_DOUBLE_EQ(share("interleaved-zb", 2), 3.0 / (3 * 2 * 16 + 3));
  EXPECT_DOUBLE_EQ(share("zbv", 2), 3.0 / (6 * 16 + 3));
  EXPECT_DOUBLE_EQ(share("dualpipev", 2), 3.0 / (6 * 16 + 3));
}

TEST(ScheduleKinds, GiveNoShareOutsideOfTheDomain) {
  const auto formula = idle_formula("foldx_aiao", 4, 2, 2);
  EXPECT_FALSE(formula->share);
  EXPECT_EQ(formula->domain, "m >= p");
  EXPECT_GT(simulated_kind("foldx_aiao", 4, 2, 2).idle, 3.0 / 7 + 0.1) << "what the formula would say";
  EXPECT_FALSE(idle_formula("zb-h2", 4, 6, 1)->share);
  EXPECT_FALSE(idle_formula("zbv", 4, 6, 2)->share);
  EXPECT_FALSE(idle_formula("my_table.csv", 4, 2, 2));
}

// tF = tI = tW = 1, p = 8, m = 32: the papers' comparison.
TEST(ScheduleKinds, TakeTheStepsOfThePapers) {
  EXPECT_NEAR(simulated_kind("gpipe", 8, 32).seconds, 117, 1e-9);
  EXPECT_NEAR(simulated_kind("1f1b", 8, 32).seconds, 117, 1e-9);
  EXPECT_NEAR(simulated_kind("interleaved", 8, 32, 2).seconds, 106.5, 1e-9);
  EXPECT_NEAR(simulated_kind("interleaved", 8, 32, 4).seconds, 101.25, 1e-9);
  EXPECT_NEAR(simulated_kind("zb-h1", 8, 32).seconds, 103, 1e-9);
  EXPECT_NEAR(simulated_kind("zbv", 8, 32).seconds, 99.5, 1e-9);
}

// What Qi et al., 2023, section 2.3 measure: the time that the slowest rank takes from its first action to its last.
TEST(ScheduleKinds, ZeroBubbleOrdersAreIdleWithinARanksSpanAsThePaperHasIt) {
  for (const PassTimes& times : {PassTimes{1, 1, 1}, {1, 1.2, 0.8}, {1, 1.5, 0.5}, {1.3, 1, 1}}) {
    const auto [f, i, w] = times;
    for (int p = 2; p <= 8; ++p) {
      for (const int m : {2 * p - 1, 2 * p, 3 * p + 1, 5 * p}) {
        SCOPED_TRACE(fmt::format("p = {}, m = {}, times {} {} {}", p, m, f, i, w));
        const auto idle = [&](const Schedule& schedule) { return max_idle_in_span(simulated_kind(schedule, times)); };
        EXPECT_NEAR(idle(make_schedule("1f1b", p, m)), (p - 1) * times.total(), 1e-9);
        EXPECT_NEAR(idle(make_schedule("zb-h1", p, m)), (p - 1) * (f + i - w), 1e-9);
        EXPECT_NEAR(idle(make_schedule("zb-h2", p, m)), (p - 1) * (f + i - 2 * w), 1e-9);
      }
    }
  }
}

// The longer warm-up costs no time where there are too few micro-batches for it.
TEST(ScheduleKinds, ZeroBubbleH2IsNeverSlowerThanH1) {
  for (int p = 2; p <= 8; ++p) {
    for (int m = 1; m <= 2 * p; ++m) {
      EXPECT_NEAR(simulated_kind("zb-h2", p, m).seconds, simulated_kind("zb-h1", p, m).seconds, 1e-9) << p << ", " << m;
    }
  }
}

// No rank waits between its first and its last action; without a barrier between steps, none waits at all.
TEST(ScheduleKinds, ZeroBubblesAreZeroInTheSteadyState) {
  for (int p = 2; p <= 8; ++p) {
    for (const int m : {2 * p - 1, 2 * p, 3 * p + 1, 32}) {
      for (const Schedule& schedule : {make_schedule("zb-h2", p, m), make_schedule("zbv", p, m)}) {
        SCOPED_TRACE(fmt::format("p = {}, m = {}, {} stages", p, m, schedule.stage_count()));
        EXPECT_NEAR(simulated_kind(schedule).idle_in_span, 0, 1e-12);
        const double part = static_cast<double>(p) / schedule.stage_count();
        const SteadyState steady =
            simulate_steady_state(lower(schedule), Costs::uniform(schedule.stage_count(), part, part, part));
        EXPECT_NEAR(steady.seconds, 3 * m, 1e-9);
        EXPECT_NEAR(steady.idle, 0, 1e-12);
      }
    }
  }
}

TEST(ScheduleKinds, HoldTheActivationsOfThePapers) {
  EXPECT_EQ(peak_activations(make_schedule("interleaved", 4, 16, 2)), (std::vector{11, 9, 7, 5}));
  for (int p = 2; p <= 8; ++p) {
    const auto all = [p](int peak) { return std::vector<int>(static_cast<std::size_t>(p), peak); };
    for (const int m : {2 * p, 3 * p, 4 * p}) {
      EXPECT_EQ(peak_activations(make_schedule("zb-h1", p, m)), all(p));
      EXPECT_EQ(peak_activations(make_schedule("zb-h2", p, m)), all(2 * p - 1));
      EXPECT_EQ(peak_activations(make_schedule("zbv", p, m)), all(2 * p)) << "halves";
      EXPECT_EQ(peak_activations(make_schedule("dualpipev", p, m)), all(2 * p + 1)) << "halves";
      EXPECT_EQ(peak_activations(make_schedule("interleaved-zb", p, m, 3)), all(3 * p)) << "thirds";
    }
  }
}

TEST(ScheduleKinds, SayWhatTheSchedulesAre) {
  for (const ScheduleKind& kind : schedule_kinds()) {
    SCOPED_TRACE(kind.name);
    const Schedule schedule = make_schedule(kind.name, 4, 8);
    bool splits = false;
    for (const auto& actions : schedule.ranks) {
      splits = splits || std::any_of(actions.begin(), actions.end(), [](const Action& action) {
                 return action.operation == Operation::backward_weight;
               });
    }
    EXPECT_EQ(kind.splits_backward, splits);
    const Placement placement = kind.is_v_shaped ? v_placement(4) : round_robin_placement(4 * kind.min_chunks, 4);
    EXPECT_EQ(static_cast<const Placement&>(schedule), placement);
    EXPECT_EQ(kind.sends_wait, kind.name == "interleaved-sync");
    EXPECT_FALSE(kind.summary.empty());
    EXPECT_EQ(schedule_if_legal(kind.name, 4, 8, 3).has_value(), kind.takes_chunks());
    EXPECT_EQ(schedule_if_legal(kind.name, 4, 8, kind.takes_chunks() ? 2 : 0, 8).has_value(), kind.takes_group);
  }
}

TEST(ScheduleKinds, RefuseWhatTheyDoNotTake) {
  EXPECT_TRUE(fails_with<UsageError>({"'gpip'", "gpipe", "zb-h1"}, [] { make_schedule("gpip", 2, 2); }));
  EXPECT_TRUE(fails_with<UsageError>({"gpipe has one stage per rank", "got 2", "interleaved"},
                                     [] { make_schedule("gpipe", 2, 2, 2); }));
  EXPECT_TRUE(fails_with<UsageError>({"zbv has two stages", "expected 2 chunks, got 3"},
                                     [] { make_schedule("zbv", 2, 4, 3); }));
  EXPECT_TRUE(fails_with<UsageError>({"dualpipev has no groups", "interleaved-zb"},
                                     [] { make_schedule("dualpipev", 2, 4, 2, 2); }));
}

}  // namespace
}  // namespace stagecoach
