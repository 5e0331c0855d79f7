// No call waits forever: a rank that fails, is silent or says something else stops all others, with its name.

#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <stdexcept>
#include <string>

#include "parallel/comm/activity.h"
#include "parallel/launch/launch.h"
#include "tests/parallel/every_transport.h"
#include "tests/support/errors.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::number;

class Failure : public ::testing::TestWithParam<test::Wait> {};
INSTANTIATE_TEST_SUITE_P(Waiting, Failure, ::testing::ValuesIn(test::kWaits),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(Failure, OfARankStopsTheOthersAtOnce) { test::expect_failure_ends(launch, GetParam()); }

TEST_P(Failure, ToAnswerEndsTheWait) { test::expect_deadline_ends(launch, GetParam(), 0.05); }

TEST(Failures, KeepTheirKind) {
  const auto world = [](auto fail) {
    return [fail] {
      launch({.ranks = 3}, [&](Rank& rank) {
        if (rank.index == 1) {
          fail();
        }
        rank.comm.barrier();
      });
    };
  };
  EXPECT_TRUE(fails_with<UsageError>({"a wrong flag"}, world([] { throw UsageError("a wrong flag"); })));
  EXPECT_TRUE(fails_with<DataError>({"a lost file"}, world([] { throw DataError("a lost file"); })));
  EXPECT_TRUE(fails_with<Error>({"rank 1, in the forward of stage 3, micro-batch 2: too large"}, world([] {
                                  const Activity activity("forward", 3, 2);
                                  throw Error("too large");
                                })));
  EXPECT_TRUE(fails_with<Error>({"rank 1", "out of memory"}, world([] { throw std::bad_alloc(); })));
  EXPECT_TRUE(fails_with<std::out_of_range>({"too far"}, world([] { throw std::out_of_range("too far"); })));
}

TEST(Failures, OfARankThatEndsEarlyNameWhatIsMissing) {
  EXPECT_TRUE(fails_with<CommError>({"barrier", "still missing: rank 2"}, [] {
    launch({.ranks = 3, .timeout = 0.05}, [](Rank& rank) {
      if (rank.index != 2) {
        rank.comm.barrier();
      }
    });
  }));
}

TEST(Failures, OfRanksThatDisagreeNameBothCalls) {
  EXPECT_TRUE(fails_with<CommError>({"all ranks of a group call the same collectives"}, [] {
    launch({.ranks = 2, .timeout = 5}, [](Rank& rank) {
      if (rank.index == 0) {
        rank.comm.barrier();
      } else {
        rank.comm.all_gather(number(rank));
      }
    });
  }));
  EXPECT_TRUE(fails_with<CommError>({"all_gather", "float32[2]", "float32[3]"}, [] {
    launch({.ranks = 2, .timeout = 5},
           [](Rank& rank) { rank.comm.all_gather(Tensor::zeros({2 + rank.index}, DType::float32, rank.device)); });
  }));
}

// A count on which one pair disagrees ends the call of every rank.
TEST(Failures, OfCountsThatDisagreeNameBothRanks) {
  std::atomic<int> told{0};
  EXPECT_TRUE(fails_with<CommError>(
      {"all_to_all", "rank 2 sends float32[1, 4] to rank 0, which expects float32[2, 4]", "exchange_counts"}, [&] {
        launch({.ranks = 3, .timeout = 5}, [&](Rank& rank) {
          RowCounts receive_rows(3, 1);
          receive_rows[2] += rank.index == 0 ? 1 : 0;
          try {
            rank.comm.all_to_all(Tensor::zeros({3, 4}, DType::float32, rank.device), RowCounts(3, 1), receive_rows);
          } catch (const CommError&) {
            ++told;
            throw;
          }
        });
      }));
  EXPECT_EQ(told, 3);
}

// Two ranks that send first and receive then: on an engine without buffers that hangs, so here it is an error.
TEST(Failures, OfAHandshakeInTheWrongOrder) {
  EXPECT_TRUE(fails_with<CommError>({"send to rank", "tag 0", "within 0.05 s"}, [] {
    launch({.ranks = 2, .timeout = 0.05}, [](Rank& rank) {
      rank.comm.send(number(rank), 1 - rank.index, 0);
      rank.comm.receive({2}, DType::float32, 1 - rank.index, 0);
    });
  }));
}

TEST(Failures, OfSenselessWorlds) {
  const auto body = [](Rank&) { FAIL() << "nothing runs"; };
  EXPECT_TRUE(fails_with<UsageError>({"from 1 to 128 ranks, got 0"}, [&] { launch({.ranks = 0}, body); }));
  EXPECT_TRUE(fails_with<UsageError>({"from 1 to 128 ranks, got 129"}, [&] { launch({.ranks = 129}, body); }));
  EXPECT_TRUE(fails_with<UsageError>({"timeout of more than 0 s", "got 0 s"},
                                     [&] { launch({.ranks = 1, .timeout = 0}, body); }));
}

}  // namespace
}  // namespace stagecoach
