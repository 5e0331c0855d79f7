// The generators: their orders as the papers have them, what they refuse, and every legal size through `check`.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "parallel/schedule/check.h"
#include "parallel/schedule/generators.h"
#include "parallel/schedule/simulate.h"
#include "parallel/schedule/text.h"
#include "tests/support/errors.h"

namespace stagecoach {
namespace {

using test::fails_with;

TEST(Generators, Naive) { EXPECT_EQ(to_text(naive_schedule(2, 2)), "0F0,0B0,0F1,0B1\n1F0,1B0,1F1,1B1\n"); }

TEST(Generators, Gpipe) {
  EXPECT_EQ(to_text(gpipe_schedule(2, 3)), "0F0,0F1,0F2,0B0,0B1,0B2\n1F0,1F1,1F2,1B0,1B1,1B2\n");
}

TEST(Generators, OneFOneB) {
  EXPECT_EQ(to_text(one_f_one_b_schedule(3, 4)),
            "0F0,0F1,0F2,0B0,0F3,0B1,0B2,0B3\n"
            "1F0,1F1,1B0,1F2,1B1,1F3,1B2,1B3\n"
            "2F0,2B0,2F1,2B1,2F2,2B2,2F3,2B3\n");
}

// Fewer micro-batches than ranks: legal, where other frameworks refuse or hang.
TEST(Generators, OneFOneBWithFewMicrobatches) {
  EXPECT_EQ(to_text(one_f_one_b_schedule(4, 2)),
            "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n2F0,2F1,2B0,2B1\n3F0,3B0,3F1,3B1\n");
}

TEST(Generators, Interleaved) {
  EXPECT_EQ(to_text(interleaved_schedule(2, 4, 2)),
            "0F0,0F1,2F0,2F1,0F2,2B0,0F3,2B1,2F2,0B0,2F3,0B1,2B2,2B3,0B2,0B3\n"
            "1F0,1F1,3F0,3B0,3F1,3B1,1F2,1B0,1F3,1B1,3F2,3B2,3F3,3B3,1B2,1B3\n");
}

TEST(Generators, LoopedBreadthFirst) {
  EXPECT_EQ(to_text(looped_breadth_first_schedule(2, 2, 2)),
            "0F0,0F1,2F0,2F1,2B0,2B1,0B0,0B1\n1F0,1F1,3F0,3F1,3B0,3B1,1B0,1B1\n");
}

TEST(Generators, ZeroBubbleH1) {
  EXPECT_EQ(to_text(zero_bubble_h1_schedule(2, 3)),
            "0F0,0F1,0I0,0W0,0F2,0I1,0W1,0I2,0W2\n"
            "1F0,1I0,1F1,1I1,1W0,1F2,1I2,1W1,1W2\n");
}

TEST(Generators, OneChunkIsOneFOneB) {
  for (const int m : {1, 3, 8}) {
    EXPECT_EQ(interleaved_schedule(4, m, 1), one_f_one_b_schedule(4, m));
  }
}

TEST(Generators, AreFoundByName) {
  for (const std::string& name : schedule_names()) {
    EXPECT_TRUE(check(make_schedule(name, 3, 6)).empty()) << name;
  }
  EXPECT_EQ(make_schedule("foldx_fifo", 2, 4, 2), make_schedule("interleaved", 2, 4, 2));
  EXPECT_TRUE(fails_with<UsageError>({"'gpip'", "gpipe", "zb-h1"}, [] { make_schedule("gpip", 2, 2); }));
  EXPECT_TRUE(fails_with<UsageError>({"gpipe", "one stage per rank"}, [] { make_schedule("gpipe", 2, 2, 2); }));
}

TEST(Generators, RefuseSizesBelowOne) {
  for (const std::string& name : schedule_names()) {
    EXPECT_TRUE(fails_with<UsageError>({"0 ranks"}, [&] { make_schedule(name, 0, 2); })) << name;
    EXPECT_TRUE(fails_with<UsageError>({"0 micro-batches"}, [&] { make_schedule(name, 2, 0); })) << name;
    EXPECT_TRUE(fails_with<UsageError>({"-3 micro-batches"}, [&] { make_schedule(name, 2, -3); })) << name;
  }
  EXPECT_TRUE(fails_with<UsageError>({"0 chunks"}, [] { make_schedule("interleaved", 2, 2, 0); }));
}

TEST(Generators, NameTheNearestLegalCount) {
  EXPECT_TRUE(fails_with<UsageError>({"9 micro-batches in groups of 4 on 4 ranks", "8 or 12"},
                                     [] { interleaved_schedule(4, 9, 2); }));
  EXPECT_TRUE(fails_with<UsageError>({"3 micro-batches", "nearest micro-batch counts for groups of 4 are 4"},
                                     [] { interleaved_schedule(4, 3, 2); }));
  EXPECT_TRUE(
      fails_with<UsageError>({"groups of 3", "nearest legal group is 5"}, [] { interleaved_schedule(4, 9, 2, 3); }));
  EXPECT_TRUE(fails_with<UsageError>({"10 micro-batches", "group is 5 (--group 5)", "groups of 4 are 8 or 12"},
                                     [] { interleaved_schedule(4, 10, 2); }));
  EXPECT_TRUE(fails_with<UsageError>({"nearest legal group is 10"}, [] { interleaved_schedule(4, 10, 2, 12); }));
  EXPECT_TRUE(fails_with<UsageError>({"zb-h1: 3 micro-batches on 4 ranks", "at least 4"},
                                     [] { zero_bubble_h1_schedule(4, 3); }));
}

/// Peak activations as docs and papers have them, rank by rank.
int wanted_peak(const std::string& name, int p, int r, int m, int v, int group) {
  if (name == "naive") {
    return 1;
  }
  if (name == "gpipe") {
    return m;
  }
  if (name == "zb-h1") {
    return p;
  }
  if (name == "foldx_aiao") {
    return m * v;
  }
  return v == 1 ? std::min(m, p - r) : std::min(m * v, 2 * (p - r - 1) + (v - 1) * group + 1);
}

// Every legal case of ranks 1..8, micro-batches 1..32, chunks 1..4, and groups.
TEST(Generators, EveryLegalSizeIsLegalWithThePeakOfThePapers) {
  int cases = 0;
  const auto see = [&](const std::string& name, int p, int m, int v, int group) {
    const Schedule schedule = make_schedule(name, p, m, v, group);
    const auto problems = check(schedule);
    ASSERT_TRUE(problems.empty()) << name << " p=" << p << " m=" << m << " v=" << v << ": " << problems.front();
    const auto peaks = peak_activations(schedule);
    for (int r = 0; r < p; ++r) {
      ASSERT_EQ(peaks[static_cast<std::size_t>(r)], wanted_peak(name, p, r, m, v, group == 0 ? p : group))
          << name << " p=" << p << " m=" << m << " v=" << v << " group=" << group << " rank " << r;
    }
    ++cases;
  };
  for (int p = 1; p <= 8; ++p) {
    for (int m = 1; m <= 32; ++m) {
      for (const char* name : {"naive", "gpipe", "1f1b"}) {
        see(name, p, m, 1, 0);
      }
      if (m >= p) {
        see("zb-h1", p, m, 1, 0);
      }
      for (int v = 1; v <= 4; ++v) {
        see("foldx_aiao", p, m, v, 0);
        for (int group = p; group <= m && v > 1; ++group) {
          if (m % group == 0 || m % group >= p) {
            see("interleaved", p, m, v, group);
          }
        }
      }
    }
  }
  EXPECT_GT(cases, 5000);
}

}  // namespace
}  // namespace stagecoach
