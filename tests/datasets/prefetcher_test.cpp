#include "datasets/prefetcher.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

namespace stagecoach {
namespace {

Batch numbered(std::int64_t index) { return {{}, {}, index, 0}; }

TEST(Prefetcher, GivesAllBatchesInOrderAndThenNothing) {
  Prefetcher prefetcher(numbered, 3, 20);
  for (std::int64_t i = 3; i < 20; ++i) {
    const auto batch = prefetcher.next();
    ASSERT_TRUE(batch);
    EXPECT_EQ(batch->index, i);
  }
  EXPECT_FALSE(prefetcher.next());
  EXPECT_FALSE(prefetcher.next());
}

TEST(Prefetcher, StaysOnlyAFewBatchesAhead) {
  std::atomic<std::int64_t> made = 0;
  Prefetcher prefetcher(
      [&](std::int64_t index) {
        ++made;
        return numbered(index);
      },
      0, 1000);
  for (std::int64_t taken = 1; taken <= 50; ++taken) {
    ASSERT_TRUE(prefetcher.next());
    EXPECT_LE(made, taken + static_cast<std::int64_t>(Prefetcher::kAhead));
  }
}

TEST(Prefetcher, AnExceptionComesOutInItsBatchsPlace) {
  Prefetcher prefetcher(
      [](std::int64_t index) {
        if (index == 2) {
          throw std::runtime_error("batch 2 is broken");
        }
        return numbered(index);
      },
      0, 10);
  EXPECT_EQ(prefetcher.next()->index, 0);
  EXPECT_EQ(prefetcher.next()->index, 1);
  EXPECT_THROW(prefetcher.next(), std::runtime_error);
  EXPECT_THROW(prefetcher.next(), std::runtime_error);
}

TEST(Prefetcher, MayBeDestroyedAtAnyTime) {
  for (int taken = 0; taken < 12; ++taken) {
    for (int repeat = 0; repeat < 20; ++repeat) {
      Prefetcher prefetcher(numbered, 0, 10);
      for (int i = 0; i < taken; ++i) {
        prefetcher.next();
      }
    }
  }
}

}  // namespace
}  // namespace stagecoach
