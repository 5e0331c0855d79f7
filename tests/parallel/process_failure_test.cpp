// What ranks that are processes say when one of them fails. Each test is run by mpirun on its own, in two processes:
// MPI cannot continue after a failure (tests/parallel/CMakeLists.txt).

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "parallel/comm/communicator.h"
#include "parallel/launch/launch.h"
#include "tests/parallel/worlds.h"
#include "tests/support/errors.h"

namespace stagecoach {
namespace {

using test::fails_with;

class ProcessFailure : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!test::ranks_are_processes() || launch_environment()->size != 2) {
      GTEST_SKIP() << "for two processes";
    }
  }
  static bool is_rank(int rank) { return launch_environment()->rank == rank; }
  /// Rank 0 sends `sent` rows in an all-to-all in which rank 1 expects `expected`.
  static void expect_other_counts_end_both(std::int64_t sent, std::int64_t expected) {
    const auto body = [&](Rank& rank) {
      const bool sends = rank.index == 0;
      const Tensor rows = Tensor::zeros({sends ? sent : 0}, DType::float32, rank.device);
      rank.comm.all_to_all(rows, {0, rows.size(0)}, {sends ? 0 : expected, 0});
      rank.comm.barrier();
    };
    const auto run = [&] { launch(test::world_of(2), body); };
    const std::string why =
        fmt::format("rank 0 sends float32[{}] to rank 1, which expects float32[{}]", sent, expected);
    EXPECT_TRUE(is_rank(1) ? fails_with<CommError>({"rank 1: all_to_all", why.c_str()}, run)
                           : fails_with<CommError>({"rank 0", "stopped because rank 1 has failed", why.c_str()}, run));
  }
};

TEST_F(ProcessFailure, AMessageOfAnotherTypeNamesBoth) {
  const auto body = [](Rank& rank) {
    if (rank.index == 0) {
      rank.comm.send(Tensor::zeros({2, 3}, DType::float32, rank.device), 1, 4);
    } else {
      rank.comm.receive({3, 2}, DType::float32, 0, 4);
    }
    rank.comm.barrier();
  };
  const auto run = [&] { launch(test::world_of(2), body); };
  EXPECT_TRUE(
      is_rank(1) ? fails_with<CommError>({"rank 1: receive from rank 0, tag 4", "float32[3, 2]", "float32[2, 3]"}, run)
                 : fails_with<CommError>({"rank 0: barrier: stopped because rank 1 has failed (rank 1: receive"}, run));
}

// Longer than the memory that the receive has for it, or shorter: MPI alone would cut it short, or leave a part unset.
TEST_F(ProcessFailure, AMessageOfAnotherLengthNamesBoth) {
  const auto body = [](Rank& rank) {
    const Shape mine{100000 + 100 * (1 - rank.index)};
    const PendingReceive receive = rank.comm.receive_async(mine, DType::float32, 1 - rank.index, 4);
    rank.comm.send_async(Tensor::zeros(mine, DType::float32, rank.device), 1 - rank.index, 4);
    static_cast<void>(receive.wait());
  };
  const auto run = [&] { launch(test::world_of(2), body); };
  EXPECT_TRUE(
      is_rank(0)
          ? fails_with<CommError>({"rank 0: receive from rank 1, tag 4", "float32[100100]", "float32[100000]"}, run)
          : fails_with<CommError>({"rank 1: receive from rank 0, tag 4", "float32[100000]", "float32[100100]"}, run));
}

TEST_F(ProcessFailure, RanksThatDisagreeNameBothCalls) {
  const auto body = [](Rank& rank) {
    Tensor tensor = Tensor::zeros({2}, DType::float32, rank.device);
    rank.index == 0 ? rank.comm.all_reduce(tensor) : rank.comm.barrier();
  };
  const auto run = [&] { launch(test::world_of(2), body); };
  EXPECT_TRUE(is_rank(0) ? fails_with<CommError>({"rank 0: all_reduce: rank 1 calls barrier"}, run)
                         : fails_with<CommError>({"rank 1: barrier: rank 0 calls all_reduce"}, run));
}

TEST_F(ProcessFailure, OfTensorsOfAllNamesBothShapes) {
  const auto body = [](Rank& rank) {
    Tensor tensor = Tensor::zeros({2 + rank.index}, DType::float32, rank.device);
    rank.comm.all_reduce(tensor);
  };
  const auto run = [&] { launch(test::world_of(2), body); };
  EXPECT_TRUE(is_rank(0) ? fails_with<CommError>({"float32[2] here and float32[3] on rank 1"}, run)
                         : fails_with<CommError>({"float32[3] here and float32[2] on rank 0"}, run));
}

TEST_F(ProcessFailure, OfTooFewRowsNamesBothRanks) { expect_other_counts_end_both(1, 100'000); }

TEST_F(ProcessFailure, OfTooManyRowsNamesBothRanks) { expect_other_counts_end_both(100'100, 100'000); }

TEST_F(ProcessFailure, ThatIsThrownIsToldToTheOther) {
  const auto body = [](Rank& rank) {
    if (rank.index == 1) {
      throw Error("it broke");
    }
    rank.comm.receive({1}, DType::float32, 1, 0);
  };
  if (is_rank(0)) {
    EXPECT_TRUE(
        fails_with<CommError>({"rank 0: receive from rank 1, tag 0: stopped because rank 1 has failed", "it broke"},
                              [&] { launch(test::world_of(2), body); }));
  } else {
    EXPECT_TRUE(fails_with<Error>({"rank 1: it broke"}, [&] { launch(test::world_of(2), body); }));
  }
}

TEST_F(ProcessFailure, OfARankThatSaysNothingIsNoticed) {
  const auto body = [](Rank& rank) {
    if (rank.index == 0) {
      rank.comm.receive({1}, DType::float32, 1, 7);
    } else {
      rank.comm.receive({1}, DType::float32, 0, 8);
    }
  };
  World world = test::world_of(2);
  world.timeout = 3;  // also for the start, which takes a second where the cores are busy
  EXPECT_TRUE(fails_with<CommError>({"receive from rank"}, [&] { launch(world, body); }));
}

TEST_F(ProcessFailure, EndsMpiForGood) {
  EXPECT_TRUE(
      fails_with<Error>({"it broke"}, [] { launch(test::world_of(2), [](Rank&) { throw Error("it broke"); }); }));
  EXPECT_TRUE(fails_with<Error>({"MPI cannot continue"}, [] { launch(test::world_of(2), [](Rank&) {}); }));
}

}  // namespace
}  // namespace stagecoach
