// Ranks that stay alive between calls.
#include "parallel/launch/rank_pool.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/cuda_backend.h"
#include "tests/support/errors.h"

namespace stagecoach {
namespace {

using test::fails_with;

TEST(RankPool, RunsEveryCallOnTheSameThreads) {
  RankPool pool({.ranks = 3});
  std::vector<std::thread::id> first(3);
  std::vector<std::thread::id> second(3);
  pool.run([&](Rank& rank) { first[static_cast<std::size_t>(rank.index)] = std::this_thread::get_id(); });
  pool.run([&](Rank& rank) {
    EXPECT_EQ(rank.comm.sum_numbers({1.0 + rank.index})[0], 6);
    second[static_cast<std::size_t>(rank.index)] = std::this_thread::get_id();
  });
  EXPECT_EQ(first, second);
  EXPECT_NE(first[0], first[1]);
  EXPECT_NE(first[0], std::this_thread::get_id());
}

TEST(RankPool, ThrowsTheErrorOfARankAndThenNamesIt) {
  for (const int failing : {0, 2}) {
    RankPool pool({.ranks = 3});
    const auto fail = [&] {
      pool.run([&](Rank& rank) {
        if (rank.index == failing) {
          throw DataError("a lost file");
        }
        if (rank.index == 1) {  // waits for the rank that fails; the third has finished
          rank.comm.receive({1}, DType::float32, failing, 0);
        }
      });
    };
    EXPECT_TRUE(fails_with<DataError>({"a lost file"}, fail));
    EXPECT_TRUE(fails_with<Error>({"ended after an earlier error", "a lost file", "start new ones"},
                                  [&] { pool.run([](Rank&) {}); }));
  }
}

TEST(RankPool, ThatCannotStartSaysSo) {
  EXPECT_TRUE(fails_with<UsageError>({"ranks, got 0"}, [] { RankPool pool({.ranks = 0}); }));
  EXPECT_TRUE(fails_with<UsageError>({"expected transport thread or nccl, got mpi"},
                                     [] { RankPool pool({.transport = Transport::mpi}); }));
}

// The World of a program that names no number uses all GPUs; after the last one the first has a second rank.
TEST(Launch, SpreadsRanksOverTheGpus) {
  const World two{.ranks = 4, .device = DeviceType::cuda, .gpus = 2};
  EXPECT_EQ(device_of(two, 1), (Device{DeviceType::cuda, 1}));
  EXPECT_EQ(device_of(two, 2), (Device{DeviceType::cuda, 0, 1}));

  const World all{.ranks = 4, .device = DeviceType::cuda};
  int gpus = 0;
  try {
    gpus = cuda::gpu_count();
  } catch (const UsageError&) {
    EXPECT_THROW(device_of(all, 0), UsageError);
    return;
  }
  EXPECT_EQ(device_of(all, gpus - 1), (Device{DeviceType::cuda, gpus - 1}));
  EXPECT_EQ(device_of(all, gpus), (Device{DeviceType::cuda, 0, 1}));
}

}  // namespace
}  // namespace stagecoach
