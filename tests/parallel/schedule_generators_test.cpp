// The generators: their orders as the papers have them, what they refuse, and every legal size through `check`.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/base/error.h"
#include "parallel/schedule/check.h"
#include "parallel/schedule/rank_actions.h"
#include "parallel/schedule/schedule_kinds.h"
#include "parallel/schedule/simulate.h"
#include "parallel/schedule/text.h"
#include "tests/support/errors.h"
#include "tests/support/sanitized.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::unless_sanitized;

TEST(Placement, IsAnyMapFromStagesToRanks) {
  EXPECT_EQ(round_robin_placement(6, 3).stage_to_rank, (std::vector{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(v_placement(3).stage_to_rank, (std::vector{0, 1, 2, 2, 1, 0}));
  EXPECT_EQ(v_placement(1).stage_to_rank, (std::vector{0, 0}));
  EXPECT_EQ(contiguous_placement({2, 1}).stage_to_rank, (std::vector{0, 2}));
  EXPECT_EQ(contiguous_placement({2, 1}).rank_of(0, 3), 1);
  const Schedule schedule = empty_schedule(Placement{{1, 0, 0}}, 2, 4);
  EXPECT_EQ(schedule.stage_count(), 3);
  EXPECT_EQ(schedule.rank_count(), 2);
  EXPECT_EQ(schedule.rank_of(0, 2), 1);
}

TEST(Generators, Naive) { EXPECT_EQ(to_text(make_schedule("naive", 2, 2)), "0F0,0B0,0F1,0B1\n1F0,1B0,1F1,1B1\n"); }

TEST(Generators, Gpipe) {
  EXPECT_EQ(to_text(make_schedule("gpipe", 2, 3)), "0F0,0F1,0F2,0B0,0B1,0B2\n1F0,1F1,1F2,1B0,1B1,1B2\n");
}

TEST(Generators, OneFOneB) {
  EXPECT_EQ(to_text(make_schedule("1f1b", 3, 4)),
            "0F0,0F1,0F2,0B0,0F3,0B1,0B2,0B3\n"
            "1F0,1F1,1B0,1F2,1B1,1F3,1B2,1B3\n"
            "2F0,2B0,2F1,2B1,2F2,2B2,2F3,2B3\n");
}

// Fewer micro-batches than ranks: legal, where other frameworks refuse or hang.
TEST(Generators, OneFOneBWithFewMicrobatches) {
  EXPECT_EQ(to_text(make_schedule("1f1b", 4, 2)),
            "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n2F0,2F1,2B0,2B1\n3F0,3B0,3F1,3B1\n");
}

TEST(Generators, Interleaved) {
  EXPECT_EQ(to_text(make_schedule("interleaved", 2, 4, 2)),
            "0F0,0F1,2F0,2F1,0F2,2B0,0F3,2B1,2F2,0B0,2F3,0B1,2B2,2B3,0B2,0B3\n"
            "1F0,1F1,3F0,3B0,3F1,3B1,1F2,1B0,1F3,1B1,3F2,3B2,3F3,3B3,1B2,1B3\n");
}

TEST(Generators, LoopedBreadthFirst) {
  EXPECT_EQ(to_text(make_schedule("foldx_aiao", 2, 2, 2)),
            "0F0,0F1,2F0,2F1,2B0,2B1,0B0,0B1\n1F0,1F1,3F0,3F1,3B0,3B1,1B0,1B1\n");
}

TEST(Generators, ZeroBubbleH1) {
  EXPECT_EQ(to_text(make_schedule("zb-h1", 2, 3)),
            "0F0,0F1,0I0,0W0,0F2,0I1,0W1,0I2,0W2\n"
            "1F0,1I0,1F1,1I1,1W0,1F2,1I2,1W1,1W2\n");
}

TEST(Generators, ZeroBubbleH2) {
  EXPECT_EQ(to_text(make_schedule("zb-h2", 2, 4)),
            "0F0,0F1,0F2,0I0,0W0,0F3,0I1,0W1,0I2,0W2,0I3,0W3\n"
            "1F0,1I0,1F1,1I1,1F2,1I2,1W0,1F3,1I3,1W1,1W2,1W3\n");
}

// Fewer micro-batches than fill it: a rank lets fewer weight gradients wait, as in sail-sg's order.
TEST(Generators, ZeroBubbleH2WithFewMicrobatches) {
  EXPECT_EQ(to_text(make_schedule("zb-h2", 3, 4)),
            "0F0,0F1,0F2,0F3,0I0,0W0,0I1,0W1,0I2,0W2,0I3,0W3\n"
            "1F0,1F1,1F2,1I0,1F3,1I1,1W0,1I2,1W1,1I3,1W2,1W3\n"
            "2F0,2I0,2F1,2I1,2F2,2I2,2F3,2I3,2W0,2W1,2W2,2W3\n");
}

// The next three are rows of PyTorch 2.15's tables.
TEST(Generators, InterleavedZeroBubble) {
  EXPECT_EQ(to_text(make_schedule("interleaved-zb", 2, 2, 2)),
            "0F0,0F1,2F0,2F1,2I0,2W0,2I1,2W1,0I0,0W0,0I1,0W1\n"
            "1F0,1F1,3F0,3I0,3F1,3I1,3W0,1I0,3W1,1I1,1W0,1W1\n");
}

TEST(Generators, ZeroBubbleV) {
  EXPECT_EQ(to_text(make_schedule("zbv", 2, 3)),
            "0F0,0F1,0F2,3F0,3I0,3W0,3F1,3I1,3W1,0I0,0W0,3F2,3I2,3W2,0I1,0W1,0I2,0W2\n"
            "1F0,2F0,1F1,2F1,2I0,2W0,1F2,1I0,1W0,2F2,2I1,2W1,1I1,2I2,1I2,1W1,2W2,1W2\n");
}

TEST(Generators, DualPipeV) {
  EXPECT_EQ(to_text(make_schedule("dualpipev", 2, 4)),
            "0F0,0F1,0F2,3F0,3I0,3W0,3F1,0F3,3B1,3F2,0B0,3B2,3F3,0B1,3B3,0I2,0W2,0I3,0W3\n"
            "1F0,2F0,1F1,2F1,1F2,2B0,2F2,1B0,1F3,2B1,2F3,1B1,2B2,1B2,2I3,1I3,2W3,1W3\n");
}

// Fewer micro-batches than the order needs: it stays as it is, without those that are missing.
TEST(Generators, VShapedOrdersTakeFewMicrobatches) {
  EXPECT_EQ(make_schedule("zbv", 4, 2), with_fewer_microbatches(make_schedule("zbv", 4, 7), 2));
  EXPECT_EQ(make_schedule("dualpipev", 4, 2), with_fewer_microbatches(make_schedule("dualpipev", 4, 8), 2));
}

TEST(Generators, OneChunkIsTheStraightPipeline) {
  for (const int m : {1, 3, 8}) {
    EXPECT_EQ(make_schedule("interleaved", 4, m, 1), make_schedule("1f1b", 4, m));
    EXPECT_EQ(make_schedule("interleaved-zb", 4, m, 1), make_schedule("zb-h1", 4, m));
  }
}

TEST(Generators, OneNameIsAnotherOrderOfWaiting) {
  EXPECT_EQ(make_schedule("interleaved-sync", 2, 4, 2), make_schedule("interleaved", 2, 4, 2));
}

TEST(Generators, RefuseSizesBelowOne) {
  for (const std::string& name : schedule_names()) {
    EXPECT_TRUE(fails_with<UsageError>({"at least 1 rank"}, [&] { make_schedule(name, 0, 2); })) << name;
    EXPECT_TRUE(fails_with<UsageError>({"1 micro-batch and", "got 2, 0 and"}, [&] { make_schedule(name, 2, 0); }))
        << name;
    EXPECT_TRUE(fails_with<UsageError>({"1 micro-batch and", "got 2, -3 and"}, [&] { make_schedule(name, 2, -3); }))
        << name;
  }
  EXPECT_TRUE(fails_with<UsageError>({"1 chunk, got 2, 2 and -1"}, [] { make_schedule("interleaved", 2, 2, -1); }));
}

TEST(Generators, NameTheNearestLegalCount) {
  EXPECT_TRUE(fails_with<UsageError>({"9 micro-batches cannot run in groups of 4 on 4 ranks", "`microbatches` 8 or 12"},
                                     [] { make_schedule("interleaved", 4, 9, 2); }));
  EXPECT_TRUE(fails_with<UsageError>({"3 micro-batches", "use `microbatches` 4 with groups of 4"},
                                     [] { make_schedule("interleaved", 4, 3, 2); }));
  EXPECT_TRUE(
      fails_with<UsageError>({"groups of 3", "use `group` 5"}, [] { make_schedule("interleaved", 4, 9, 2, 3); }));
  EXPECT_TRUE(fails_with<UsageError>({"10 micro-batches", "use `group` 5", "`microbatches` 8 or 12 with groups of 4"},
                                     [] { make_schedule("interleaved", 4, 10, 2); }));
  EXPECT_TRUE(fails_with<UsageError>({"use `group` 10"}, [] { make_schedule("interleaved", 4, 10, 2, 12); }));
  EXPECT_TRUE(fails_with<UsageError>({"interleaved-zb: 9 micro-batches cannot run in groups of 4", "8 or 12"},
                                     [] { make_schedule("interleaved-zb", 4, 9, 2); }));
}

// Every legal case of ranks 1..8, micro-batches 1..32, chunks 2..4, and groups.
TEST(Generators, EveryLegalGroupIsLegalWithThePeakOfThePapers) {
  int cases = 0;
  const auto see = [&](const std::string& name, int p, int m, int v, int group) {
    SCOPED_TRACE(fmt::format("{}: p = {}, m = {}, v = {}, group = {}", name, p, m, v, group));
    const Schedule schedule = make_schedule(name, p, m, v, group);
    ASSERT_EQ(check(schedule), std::vector<std::string>{});
    const auto peaks = peak_activations(schedule);
    for (int r = 0; r < p; ++r) {
      const int warm_up = (v - 1) * group + (name == "interleaved" ? 2 * (p - r - 1) + 1 : p);
      ASSERT_EQ(peaks[static_cast<std::size_t>(r)], std::min(m * v, warm_up)) << "rank " << r;
      ASSERT_EQ(peaks[static_cast<std::size_t>(r)], find_schedule(name)->peak_activations({p, m, v, group}, r));
    }
    ++cases;
  };
  for (int p = 1; p <= 8; ++p) {
    for (int m = 1; m <= unless_sanitized(32, 12); ++m) {
      for (int v = 2; v <= 4; ++v) {
        for (int group = p; group <= m; ++group) {
          if (m % group == 0 || m % group >= p) {
            see("interleaved", p, m, v, group);
            see("interleaved-zb", p, m, v, group);
          }
        }
        see("interleaved-zb", p, m, v, m);  // also with fewer micro-batches than ranks
      }
    }
  }
  EXPECT_GT(cases, unless_sanitized(10'000, 500));
}

TEST(Generators, SpeakOfThemselvesByTheirOwnName) {
  EXPECT_TRUE(fails_with<UsageError>({"interleaved-sync: 9 micro-batches cannot run in groups of 4"},
                                     [] { make_schedule("interleaved-sync", 4, 9, 2); }));
  EXPECT_TRUE(fails_with<UsageError>({"interleaved with one chunk per rank", "expected no `group`, got 4"},
                                     [] { make_schedule("interleaved", 4, 8, 1, 4); }));
}

}  // namespace
}  // namespace stagecoach
