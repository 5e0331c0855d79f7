// The pool of threads: each index once, failures, resizing, and many small jobs.

#include "core/parallel_for.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/devices.h"
#include "tests/support/errors.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::fresh_device;
using test::ThreadsFor;
using namespace std::chrono_literals;

class ParallelFor : public ::testing::TestWithParam<int> {
 protected:
  Device device_ = fresh_device();
  ThreadsFor held_{device_, GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Threads, ParallelFor, ::testing::Values(1, 2, 3, 7));

TEST_P(ParallelFor, RunsEachIndexOnce) {
  for (const std::size_t count : {0U, 1U, 2U, 3U, 6U, 7U, 8U, 1000U, 20'000U}) {
    std::vector<std::atomic<int>> runs(count);
    parallel_for(device_, static_cast<std::int64_t>(count),
                 [&](std::int64_t i) { ++runs.at(static_cast<std::size_t>(i)); });
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(runs[i], 1) << "index " << i << " of " << count;
    }
  }
}

TEST_P(ParallelFor, UsesAllItsThreadsAtOnce) {
  EXPECT_EQ(threads(device_), GetParam());
  std::atomic<int> met{0};
  const auto deadline = std::chrono::steady_clock::now() + 20s;  // only reached when the test fails
  parallel_for(device_, GetParam(), [&](std::int64_t) {
    ++met;
    while (met < GetParam() && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
    EXPECT_EQ(met, GetParam()) << "indices were not under way at the same time";
  });
}

TEST_P(ParallelFor, WritesAreSeenByTheCaller) {
  std::vector<std::int64_t> values(1000);
  for (std::int64_t round = 1; round <= 50; ++round) {
    parallel_for(device_, 1000, [&](std::int64_t i) { values[static_cast<std::size_t>(i)] += round * i; });
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(values[i], 1275 * static_cast<std::int64_t>(i));
  }
}

TEST_P(ParallelFor, ExceptionsComeOutAndThePoolWorksAfterwards) {
  for (const std::int64_t bad : {0, 1, 50, 99}) {
    EXPECT_TRUE(fails_with({"index", std::to_string(bad).c_str()}, [&] {
      parallel_for(device_, 100, [&](std::int64_t i) { STAGECOACH_CHECK(i != bad, "index {}", i); });
    }));
    std::atomic<int> runs{0};
    parallel_for(device_, 100, [&](std::int64_t) { ++runs; });
    EXPECT_EQ(runs, 100);
  }
}

TEST_P(ParallelFor, OfManyExceptionsOneComesOut) {
  for (int round = 0; round < 20; ++round) {
    EXPECT_THROW(parallel_for(device_, 50, [](std::int64_t i) { throw std::out_of_range(std::to_string(i)); }),
                 std::out_of_range);
    std::atomic<int> runs{0};
    EXPECT_NO_THROW(parallel_for(device_, 50, [&](std::int64_t) { ++runs; })) << "an old exception was thrown again";
    EXPECT_EQ(runs, 50);
  }
}

TEST_P(ParallelFor, TakesThousandsOfTinyJobsInARow) {
  std::atomic<std::int64_t> sum{0};
  for (int job = 0; job < 2000; ++job) {
    parallel_for(device_, 3, [&](std::int64_t i) { sum += i; });
  }
  EXPECT_EQ(sum, 6000);
}

// Long enough after the last job that the workers have stopped spinning.
TEST_P(ParallelFor, WakesItsSleepingThreads) {
  std::atomic<std::int64_t> sum{0};
  for (int job = 0; job < 20; ++job) {
    std::this_thread::sleep_for(2ms);
    parallel_for(device_, 10, [&](std::int64_t i) { sum += i; });
  }
  EXPECT_EQ(sum, 900);
}

TEST(ThreadPool, IsResizedBetweenJobs) {
  const Device device = fresh_device();
  EXPECT_EQ(threads(device), 1);
  for (const int count : {3, 1, 7, 7, 2, 1, 4}) {
    const ThreadsFor held(device, count);
    EXPECT_EQ(threads(device), count);
    std::atomic<int> runs{0};
    parallel_for(device, 100, [&](std::int64_t) { ++runs; });
    EXPECT_EQ(runs, 100) << count << " threads";
  }
  EXPECT_EQ(threads(device), 1);
}

TEST(ThreadPool, CanBeStoppedWithoutEverHavingWorked) {
  for (int round = 0; round < 100; ++round) {
    ThreadPool pool;
    pool.resize(1 + round % 4);
  }
}

TEST(ThreadPool, NeedsAtLeastOneThread) {
  const Device device = fresh_device();
  for (const int count : {0, -1}) {
    EXPECT_TRUE(fails_with<UsageError>({std::to_string(count).c_str(), to_string(device).c_str(), "expected 1 to"},
                                       [&] { set_threads(device, count); }));
  }
  EXPECT_EQ(threads(device), 1);
}

// Each rank has a device of its own, and all ranks work at once.
TEST(ThreadPool, PoolsOfSeveralDevicesWorkAtOnce) {
  std::atomic<std::int64_t> sum{0};
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < 3; ++rank) {
      ranks.emplace_back([&, device = fresh_device()] {
        const ThreadsFor held(device, 2);
        for (int job = 0; job < 300; ++job) {
          parallel_for(device, 5, [&](std::int64_t i) { sum += i; });
        }
      });
    }
  }
  EXPECT_EQ(sum, 3 * 300 * 10);
}

}  // namespace
}  // namespace stagecoach
