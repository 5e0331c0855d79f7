// Ranks that wait for one that is busy for longer than the timeout, with every transport, and those that give up on one
// that is silent.

#include "parallel/comm/keep_alive.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>

#include "core/base/throw_if.h"
#include "parallel/comm/communicator_controls.h"
#include "tests/parallel/every_transport.h"
#include "tests/parallel/nccl_world.h"
#include "tests/parallel/worlds.h"
#include "tests/support/files.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::Launch;

constexpr double kTimeout = 0.5;  // seconds
constexpr std::chrono::milliseconds kBusy(1200);

/// Ranks 0 and 1 are busy in turn, while the others wait for them in messages and in collectives.
void work_slowly(Rank& rank) {
  KeepAlive keep_alive(rank.comm, kTimeout);
  for (const int busy : {0, 1}) {
    keep_alive.during([&] {
      if (rank.index == busy) {
        std::this_thread::sleep_for(kBusy);
        rank.comm.send_number(7, 1 - busy, 3);
      } else if (rank.index == 1 - busy) {
        EXPECT_EQ(rank.comm.receive_number(busy, 3), 7);
      }
    });
  }
  rank.comm.barrier();
}

class KeepAlives : public ::testing::TestWithParam<Launch> {};
INSTANTIATE_TEST_SUITE_P(Launch, KeepAlives, ::testing::Values(Launch{launch}, Launch{test::launch_on_test_backend}),
                         [](const auto& tested) { return tested.index == 0 ? "Threads" : "TestBackend"; });

TEST_P(KeepAlives, LetOthersWaitForSlowWork) { GetParam()({.ranks = 3, .timeout = kTimeout}, work_slowly); }

TEST(KeepAlive, OfTheProcessesLetsOthersWaitForSlowWork) {
  if (!test::ranks_are_processes() || launch_environment()->size != 3) {
    GTEST_SKIP() << "for three processes of mpirun";
  }
  World world = test::world_of(3);
  world.timeout = kTimeout * 10;  // MPI starts within it
  launch(world, [](Rank& rank) {
    KeepAlive keep_alive(rank.comm, kTimeout * 10);
    keep_alive.during([&] { std::this_thread::sleep_for(std::chrono::milliseconds(rank.index == 0 ? 7000 : 0)); });
  });
}

/// Rank `silent` gives no signs, as if its process stood still, while rank 0 is busy and gives them. The last rank must
/// give up on it long before rank 0 is done.
void expect_silence_ends(Launch launch, int silent) {
  std::promise<void> given_up;
  const std::shared_future<void> is_over(given_up.get_future());
  EXPECT_TRUE(fails_with<CommError>({"rank 2: ", "no answer within 0.5 s"}, [&] {
    launch({.ranks = 3, .timeout = kTimeout}, [&](Rank& rank) {
      const Heartbeat::Seconds longest_call(rank.index == silent ? 0.1 : 600);
      KeepAlive keep_alive(rank.comm, kTimeout, longest_call);
      try {
        keep_alive.during([&] {
          if (rank.index != 2) {
            is_over.wait();
          }
        });
      } catch (const CommError&) {
        if (rank.index == 2) {
          given_up.set_value();
        }
        throw;
      }
    });
  }));
}

TEST_P(KeepAlives, DoNotHideARankThatIsSilent) { expect_silence_ends(GetParam(), 1); }

TEST_P(KeepAlives, EndForARankWhoseCallNeverEnds) { expect_silence_ends(GetParam(), 0); }

TEST_P(KeepAlives, DoNotHideARankThatNeverTakesPart) {
  EXPECT_TRUE(fails_with<CommError>({"barrier", "within 0.5 s"}, [&] {
    GetParam()({.ranks = 2, .timeout = kTimeout}, [&](Rank& rank) {
      KeepAlive keep_alive(rank.comm, kTimeout);
      keep_alive.during([] {});
      if (rank.index == 0) {
        keep_alive.during([] {});
      }
    });
  }));
}

TEST_P(KeepAlives, FillNoRecord) {
  const test::TemporaryFolder folder;
  EXPECT_TRUE(fails_with<DataError>({"the disk is full"}, [&] {
    GetParam()({.ranks = 2, .timeout = kTimeout}, [&](Rank& rank) {
      rank.comm.controls().leave_record_in(folder.path());
      KeepAlive keep_alive(rank.comm, kTimeout);
      keep_alive.during([] { std::this_thread::sleep_for(kBusy); });
      throw_if<DataError>(rank.index == 0, "the disk is full");
      rank.comm.barrier();
    });
  }));
  const std::string record = test::read_bytes(folder.path() / "flight_0.jsonl");
  EXPECT_NE(record.find("\"barrier\""), std::string::npos) << record;
  EXPECT_EQ(record.find("send_number"), std::string::npos) << record;
}

TEST_P(KeepAlives, TellAtOnceOfWorkThatFails) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(fails_with<DataError>({"the disk is full"}, [&] {
    GetParam()({.ranks = 3, .timeout = 60}, [](Rank& rank) {
      KeepAlive keep_alive(rank.comm, 60);
      const auto save = [&] { keep_alive.during([&] { throw_if<DataError>(rank.index == 0, "the disk is full"); }); };
      if (rank.index == 0) {
        return save();
      }
      EXPECT_TRUE(fails_with<CommError>({"stopped because rank 0 has failed", "the disk is full"}, save));
    });
  }));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30)) << "long before the timeout";
}

}  // namespace
}  // namespace stagecoach
